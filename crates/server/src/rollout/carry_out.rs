use std::sync::Arc;

use refit_backend::{Error, Result, Transaction};
use refit_rollout::{Decision, HostFacts, Mark, Plan, marked};
use refit_types::{GroupState, Instance};

use super::Rollouts;
use super::cycle::{Due, Overlay};
use super::stored::{Kept, encoded};
use crate::events::Event;
use crate::fleet::Fleet;

impl Rollouts {
    /// Stores a decision in one transaction: the group's record, its hosts, and an event if the group enters
    /// another state. Nothing happens if anything that it rests on has changed.
    pub(super) async fn carry_out(&self, due: Due, overlay: &mut Overlay) -> Result<()> {
        let now = self.clock();
        let Due { decision, plan, rests_on, decided_on } = due;
        let unchanged = rests_on.into_iter();
        let mut transaction =
            unchanged.fold(Transaction::new(), |transaction, (key, expect)| transaction.expect(&key, expect));
        let name = plan.groups[decision.group].name.clone();
        transaction = transaction.put(&super::stored::group_key(&name)?, encoded(&decision.record)?);

        let mut changed = Vec::with_capacity(decision.marks.len());
        for ((host, mark), decided_on) in decision.marks.iter().zip(&decided_on) {
            let key = Fleet::key(*host)?;
            let arriving = overlay.get(host).filter(|_| matches!(mark, Mark::Finish(_)));
            let present = match arriving {
                Some(arriving) => Some((Arc::new(arriving.instance.clone()), arriving.revision)),
                None => self.fleet.known(*host),
            };
            let Some((instance, revision)) = present else {
                return Err(Error::Conflict { key });
            };
            let upgrade = marked(&plan, decision.group, &decision.record, &instance, *mark, now);
            let Some(upgrade) = upgrade.filter(|_| self.is_as_decided(&plan, &instance, decided_on)) else {
                return Err(Error::Conflict { key });
            };
            let instance = Instance { upgrade: Some(Box::new(upgrade)), ..Instance::clone(&instance) };
            transaction = transaction.expect_revision(&key, revision).put(&key, encoded(&instance)?);
            changed.push((*host, instance, arriving.is_some()));
        }
        if let Some(event) = self.transition(&plan, &decision) {
            tracing::info!(target: "audit", group = %name, message = event.message, "a group changed its state");
            let (key, value) = self.events.entry(event)?;
            transaction = transaction.put(&key, value);
        }

        let revision = self.backend.transact(transaction).await?;
        {
            let mut state = self.write();
            let is_newest = state.stored.groups.get(&name).is_none_or(|known| known.revision < revision);
            if is_newest {
                let kept = Kept { value: decision.record.clone(), revision };
                state.stored.groups.insert(name, kept);
            }
            let engine = state.engine.as_mut().filter(|engine| engine.plan().epoch == plan.epoch);
            if let Some(engine) = engine.filter(|_| is_newest) {
                engine.record(decision.group, &decision.record);
            }
        }
        let merged = changed.iter().filter(|(_, _, merged)| *merged).count();
        self.metrics.rollout_writes(changed.len() - merged, merged);
        for (host, instance, is_arrival) in changed {
            if let Some(arriving) = is_arrival.then(|| overlay.remove(&host)).flatten() {
                self.arrivals.done(host, &arriving.heartbeat);
            }
            self.fleet.stored_as(host, instance, revision);
        }
        Ok(())
    }

    /// Whether what was decided is what would be decided from the host's record now. What the engine knows does not
    /// tell: it may have learned since that another server has carried out the same, and the group's record, which
    /// counts that already, may have been read before.
    fn is_as_decided(&self, plan: &Plan, instance: &Instance, decided_on: &HostFacts) -> bool {
        let state = self.read();
        let is_same_epoch = state.engine.as_ref().is_some_and(|engine| engine.plan().epoch == plan.epoch);
        is_same_epoch && state.facts(plan, instance).is_same_as(decided_on)
    }

    fn transition(&self, plan: &Plan, decision: &Decision) -> Option<Event> {
        let state = &decision.record.state;
        if *state == decision.before.state {
            return None;
        }
        let name = &plan.groups[decision.group].name;
        let version = &plan.version;
        let record = &decision.record;
        let message = match state {
            GroupState::Active => format!("{name} is active: hosts go to {version}"),
            GroupState::Scheduled => {
                format!("the window of {name} closed: {} of {} upgraded", record.upgraded, record.members)
            }
            GroupState::Succeeded => {
                format!("{name} succeeded: {} of {} upgraded to {version}", record.upgraded, record.members)
            }
            GroupState::Halted(halt) => format!("{name} halted: {halt}"),
        };
        Some(self.event(&format!("group.{}", state.as_str()), &format!("group/{name}"), &message))
    }
}
