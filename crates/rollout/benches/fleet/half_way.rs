//! The engine in the middle of a rollout to a fleet of any size, driven without a store.

use jiff::Timestamp;
use refit_rollout::{
    AttemptEnd, Decision, Engine, HostFacts, HostOutcome, HostTransition, InProgress, PlannedTransition,
};
use refit_types::{HostId, Revision};
use uuid::Uuid;

use super::{GROUPS, Outcome, plan, start};

/// A rollout under way: two groups are done, the third is half done with its slots full, two wait.
pub struct HalfWay {
    pub engine: Engine,
    hosts: u32,
    /// Those in flight, in the order in which they end.
    flying: Vec<HostId>,
}

impl HalfWay {
    pub fn new(hosts: u32) -> Outcome<Self> {
        let mut fleet = Self { engine: Engine::new(plan()?, start()), hosts, flying: Vec::new() };
        for number in 0..hosts {
            fleet.engine.host(&fleet.newcomer(number), Revision::default());
        }
        let now = start();
        // Each round of starts is finished at once, until the third group is half done.
        loop {
            let decisions = fleet.engine.decide(now, 1000, InProgress::NOTHING);
            let upgraded = fleet.engine.view().group_record(2).map_or(0, |record| record.upgraded);
            if upgraded >= hosts / GROUPS / 2 && decisions.is_empty() {
                break;
            }
            for decision in &decisions {
                let stored = fleet.stored(decision, now);
                fleet.apply(decision, &stored);
            }
            if decisions.is_empty() {
                for host in std::mem::take(&mut fleet.flying) {
                    let facts = fleet.engine.view().facts(host).ok_or("an unknown host is in flight")?;
                    fleet.engine.host(&HostFacts { on_version: true, ..facts }, Revision::default());
                }
            }
        }
        if fleet.flying.is_empty() {
            return Err("nothing is in flight".into());
        }
        Ok(fleet)
    }

    fn id(number: u32) -> HostId {
        // Any odd multiplier spreads the numbers over all UUIDs.
        let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        HostId::new(Uuid::from_u128(spread))
    }

    fn newcomer(&self, number: u32) -> HostFacts {
        HostFacts {
            host: Self::id(number),
            group: usize::try_from(number % GROUPS).ok(),
            member: false,
            newcomer: false,
            carried: false,
            settled: false,
            started: None,
            ended: None,
            attempt: 0,
            on_version: false,
            proving: false,
            held: false,
            acknowledged: false,
            undone: false,
            called_off: false,
            suspended: false,
            lost_since: None,
        }
    }

    /// What is known of some host, spread over the fleet.
    pub fn any(&self, number: u32) -> HostFacts {
        let number = number.wrapping_mul(7919) % self.hosts;
        self.engine.view().facts(Self::id(number)).unwrap_or_else(|| self.newcomer(number))
    }

    /// The next one in flight, with its update done.
    pub fn finished(&mut self) -> Outcome<HostFacts> {
        let host = self.flying.remove(0);
        let facts = self.engine.view().facts(host).ok_or("an unknown host is in flight")?;
        Ok(HostFacts { on_version: true, acknowledged: true, ..facts })
    }

    /// What is stored of the hosts of a decision, as the server learns it from their records.
    pub fn stored(&mut self, decision: &Decision, now: Timestamp) -> Vec<HostFacts> {
        let mut stored = Vec::new();
        for PlannedTransition { host, transition, .. } in &decision.transitions {
            let Some(facts) = self.engine.view().facts(*host) else { continue };
            stored.push(match transition {
                HostTransition::Admit => HostFacts { member: true, ..facts },
                HostTransition::AdmitUpgraded => {
                    HostFacts { member: true, ended: Some(HostOutcome::Upgraded), ..facts }
                }
                HostTransition::Start => {
                    self.flying.push(*host);
                    HostFacts { started: Some(now), attempt: facts.attempt + 1, ..facts }
                }
                HostTransition::Revoke => HostFacts { started: None, ..facts },
                HostTransition::StartNewcomer => {
                    HostFacts { newcomer: true, started: Some(now), attempt: facts.attempt + 1, ..facts }
                }
                HostTransition::AdmitInFlight => HostFacts { member: true, newcomer: false, ..facts },
                // There is one epoch only, and nobody pauses.
                HostTransition::CarryNewcomer
                | HostTransition::Settle
                | HostTransition::Suspend
                | HostTransition::Resume => facts,
                HostTransition::Finish(AttemptEnd::Upgraded) => {
                    HostFacts { ended: Some(HostOutcome::Upgraded), ..facts }
                }
                HostTransition::Finish(AttemptEnd::TimedOut) => {
                    HostFacts { ended: Some(HostOutcome::TimedOut { round: 0 }), ..facts }
                }
                HostTransition::Finish(_) => {
                    HostFacts { ended: Some(HostOutcome::Failed { round: 0 }), ..facts }
                }
            });
        }
        stored
    }

    /// Tells the engine what was stored.
    pub fn apply(&mut self, decision: &Decision, stored: &[HostFacts]) {
        stored.iter().for_each(|facts| self.engine.host(facts, Revision::default()));
        self.engine.record(decision.group, &decision.record, Revision::default());
    }
}
