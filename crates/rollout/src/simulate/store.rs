//! The simulated store and hosts, packed into 16 bytes for each host so that a million fit in memory.

use jiff::{SignedDuration, Timestamp};
use refit_types::HostId;
use uuid::Uuid;

use super::behaviour::{Behaviour, Purpose};
use super::timeline::Outcomes;
use crate::{AttemptEnd, Cohort, HostFacts, HostOutcome, HostTransition, Plan};

const NEVER: u32 = u32::MAX;
/// Before the start, for longer than anyone would wait.
const LONG_AGO: u32 = u32::MAX - 1;
const NO_GROUP: u8 = u8::MAX;

const MEMBER: u8 = 1;
const ON_VERSION: u8 = 1 << 1;
const HELD: u8 = 1 << 2;
const ACKNOWLEDGED: u8 = 1 << 3;
const UNDONE: u8 = 1 << 4;
/// It had the version before anything began.
const ALREADY: u8 = 1 << 5;
/// It was started before it became a member.
const NEWCOMER: u8 = 1 << 6;

/// What is stored of one host and what it reports, in 16 bytes. Times are seconds since the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    started: u32,
    lost: u32,
    pub(super) attempt: u16,
    group: u8,
    flags: u8,
    outcome: Stored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Nothing,
    Upgraded,
    Failed,
    TimedOut,
}

impl Packed {
    pub(super) fn is_flying(&self) -> bool {
        self.started != NEVER && self.outcome == Stored::Nothing
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Every simulated host: what a real cluster has in its store and hears in heartbeats.
#[derive(Debug)]
pub(super) struct Store {
    start: Timestamp,
    seed: u64,
    hosts: Vec<Packed>,
    /// Counted from the hosts' own transitions, so that it can be held against what the engine counts.
    flying: Vec<u32>,
}

impl Store {
    pub(super) fn new(plan: &Plan, fleet: &[Cohort], start: Timestamp, seed: u64) -> Self {
        let total = fleet.iter().map(|cohort| cohort.count as usize).sum();
        let mut hosts = Vec::with_capacity(total);
        for cohort in fleet {
            let already = if cohort.version == plan.version { ON_VERSION | ALREADY } else { 0 };
            let host = Packed {
                started: NEVER,
                lost: if cohort.live { NEVER } else { LONG_AGO },
                attempt: 0,
                group: cohort.group(plan).and_then(|group| u8::try_from(group).ok()).unwrap_or(NO_GROUP),
                flags: already | if cohort.held { HELD } else { 0 },
                outcome: Stored::Nothing,
            };
            hosts.extend(std::iter::repeat_n(host, cohort.count as usize));
        }
        Self { start, seed, hosts, flying: vec![0; plan.groups.len()] }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn flying(&self, group: usize) -> u32 {
        self.flying.get(group).copied().unwrap_or_default()
    }

    pub(super) fn group(&self, host: u32) -> Option<usize> {
        let group = self.hosts.get(host as usize)?.group;
        (group != NO_GROUP).then_some(group.into())
    }

    pub(super) fn host(&self, host: u32) -> Option<&Packed> {
        self.hosts.get(host as usize)
    }

    /// UUIDs look random, as real ones do, and end in the number of the host.
    pub(super) fn id(&self, host: u32) -> HostId {
        let behaviour = Behaviour { seed: self.seed, ..Behaviour::default() };
        let high = u64::from(behaviour.up_to(u32::MAX, host, 0, Purpose::Name)) << 32
            | u64::from(behaviour.up_to(u32::MAX, host, 1, Purpose::Name));
        HostId::new(Uuid::from_u64_pair(high, host.into()))
    }

    pub(super) fn number(id: HostId) -> u32 {
        let (_, low) = id.uuid().as_u64_pair();
        u32::try_from(low).unwrap_or(u32::MAX)
    }

    pub(super) fn facts(&self, host: u32) -> Option<HostFacts> {
        let packed = self.hosts.get(host as usize)?;
        let at = |seconds: u32| match seconds {
            NEVER => None,
            LONG_AGO => self.start.saturating_sub(SignedDuration::from_hours(24)).ok(),
            seconds => self.start.saturating_add(SignedDuration::from_secs(seconds.into())).ok(),
        };
        Some(HostFacts {
            host: self.id(host),
            group: self.group(host),
            member: packed.is(MEMBER),
            newcomer: packed.is(NEWCOMER),
            carried: false,
            settled: false,
            started: at(packed.started),
            ended: match packed.outcome {
                Stored::Nothing => None,
                Stored::Upgraded => Some(HostOutcome::Upgraded),
                Stored::Failed => Some(HostOutcome::Failed { round: 0 }),
                Stored::TimedOut => Some(HostOutcome::TimedOut { round: 0 }),
            },
            attempt: packed.attempt.into(),
            on_version: packed.is(ON_VERSION),
            proving: false,
            held: packed.is(HELD),
            acknowledged: packed.is(ACKNOWLEDGED),
            undone: packed.is(UNDONE),
            called_off: false,
            suspended: false,
            lost_since: at(packed.lost),
        })
    }

    pub(super) fn apply(&mut self, host: u32, transition: HostTransition, now: u32) {
        self.change(host, |packed| match transition {
            HostTransition::Admit | HostTransition::AdmitInFlight => {
                packed.flags = packed.flags & !NEWCOMER | MEMBER;
            }
            HostTransition::AdmitUpgraded => {
                packed.flags = packed.flags & !NEWCOMER | MEMBER;
                packed.outcome = Stored::Upgraded;
            }
            HostTransition::Start | HostTransition::StartNewcomer => {
                if transition == HostTransition::StartNewcomer {
                    packed.flags |= NEWCOMER;
                }
                packed.started = now;
                packed.attempt = packed.attempt.saturating_add(1);
                packed.outcome = Stored::Nothing;
                packed.flags &= !(ACKNOWLEDGED | UNDONE);
            }
            HostTransition::Revoke => {
                packed.started = NEVER;
                packed.flags &= !NEWCOMER;
            }
            // There is one epoch only, and nobody pauses.
            HostTransition::CarryNewcomer
            | HostTransition::Settle
            | HostTransition::Suspend
            | HostTransition::Resume => {}
            HostTransition::Finish(AttemptEnd::Upgraded) => packed.outcome = Stored::Upgraded,
            HostTransition::Finish(AttemptEnd::Undone | AttemptEnd::Lost) => packed.outcome = Stored::Failed,
            HostTransition::Finish(AttemptEnd::TimedOut) => packed.outcome = Stored::TimedOut,
        });
    }

    pub(super) fn acknowledge(&mut self, host: u32) {
        self.change(host, |packed| packed.flags |= ACKNOWLEDGED);
    }

    pub(super) fn upgrade(&mut self, host: u32) {
        self.change(host, |packed| packed.flags |= ON_VERSION);
    }

    pub(super) fn undo(&mut self, host: u32) {
        self.change(host, |packed| packed.flags |= UNDONE);
    }

    pub(super) fn lose(&mut self, host: u32, now: u32) {
        self.change(host, |packed| packed.lost = now);
    }

    fn change(&mut self, host: u32, change: impl FnOnce(&mut Packed)) {
        let Some(packed) = self.hosts.get_mut(host as usize) else { return };
        let before = u32::from(packed.is_flying());
        change(packed);
        let after = u32::from(packed.is_flying());
        if let Some(flying) = self.flying.get_mut(usize::from(packed.group)) {
            *flying = (*flying + after).saturating_sub(before);
        }
    }

    /// What became of the hosts of each group; the last are those that no group takes.
    pub(super) fn outcomes(&self) -> Vec<Outcomes> {
        let mut all = vec![Outcomes::default(); self.flying.len() + 1];
        let ungrouped = self.flying.len();
        for packed in &self.hosts {
            let group = usize::from(packed.group).min(ungrouped);
            let outcomes = &mut all[group];
            *match packed.outcome {
                Stored::Failed => &mut outcomes.failed,
                Stored::TimedOut => &mut outcomes.timed_out,
                _ if packed.is(ALREADY) => &mut outcomes.had_it,
                Stored::Upgraded => &mut outcomes.upgraded,
                Stored::Nothing if packed.started != NEVER => &mut outcomes.in_flight,
                Stored::Nothing if packed.is(HELD) => &mut outcomes.held,
                Stored::Nothing if packed.lost != NEVER => &mut outcomes.away,
                Stored::Nothing => &mut outcomes.not_started,
            } += 1;
        }
        all
    }
}
