use std::sync::RwLockReadGuard;

use refit_rollout::{HostFacts, Plan};
use refit_types::{ClusterMaintenanceConfig, GroupRecord, Instance, RolloutRecord};

use super::status::reason;
use super::{Rollouts, Standing, State};

/// Where hosts stand, all at one moment. Nothing is decided while one is held: not across anything slow.
pub(crate) struct Survey<'a> {
    state: RwLockReadGuard<'a, State>,
}

/// Where one host stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its group, by its position in the plan.
    pub(crate) group: Option<usize>,
    /// How far it is; nothing for a host that no group takes, and that is connected.
    pub(crate) standing: Option<Standing>,
}

impl Rollouts {
    /// Asks where hosts stand. Take it after the lock of the fleet, never before.
    pub(crate) fn survey(&self) -> Survey<'_> {
        Survey { state: self.read() }
    }

    /// What operators said last, and what is rolled out.
    pub(crate) fn said(&self) -> (ClusterMaintenanceConfig, Option<RolloutRecord>) {
        let state = self.read();
        let is_chosen = state.stored.version.is_some();
        let plan = state.stored.plan.as_ref().filter(|_| is_chosen);
        (state.stored.settings(), plan.map(|kept| kept.value.clone()))
    }
}

impl Survey<'_> {
    /// What is rolled out, if anything.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.state.engine.as_ref().map(|engine| engine.plan())
    }

    /// Whether some server hears the host.
    pub(crate) fn is_connected(&self, instance: &Instance) -> bool {
        self.state.lost_since(instance).is_none()
    }

    pub(crate) fn place(&self, instance: &Instance) -> Place {
        match self.facts(instance) {
            Some((group, record, facts)) => {
                Place { group: Some(group), standing: Some(Standing::of(&facts, record)) }
            }
            None => Place { group: None, standing: (!self.is_connected(instance)).then_some(Standing::Away) },
        }
    }

    /// Why it stands there, in words; empty if that goes without saying.
    pub(crate) fn reason(&self, instance: &Instance, place: Place) -> String {
        let found = self.plan().zip(self.facts(instance)).zip(place.standing);
        found.map_or_else(String::new, |((plan, (_, _, facts)), standing)| {
            reason(&self.state, plan, instance, &facts, standing)
        })
    }

    fn facts(&self, instance: &Instance) -> Option<(usize, &GroupRecord, HostFacts)> {
        let engine = self.state.engine.as_ref()?;
        let facts = engine.facts(instance.host_id)?;
        let group = facts.group?;
        Some((group, engine.group_record(group)?, facts))
    }
}
