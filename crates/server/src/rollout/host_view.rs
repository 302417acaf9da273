//! Where hosts stand in the rollout, for pages and lists.

use std::sync::Arc;

use refit_rollout::{HostFacts, Plan};
use refit_types::{GroupRecord, Instance};

use super::status::reason;
use super::{Rollouts, Standing};
use crate::fleet::FleetView;

/// Where hosts stand, all at one moment.
pub(crate) struct Survey {
    view: Arc<FleetView>,
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
    /// Asks where hosts stand.
    pub(crate) fn survey(&self) -> Survey {
        Survey { view: self.fleet.view() }
    }
}

impl Survey {
    /// What is rolled out, if anything.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.view.rollout.as_ref().map(|rollout| rollout.plan())
    }

    /// Whether some server hears the host.
    pub(crate) fn is_connected(&self, instance: &Instance) -> bool {
        self.view.lost_since(instance).is_none()
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
            reason(&self.view, plan, instance, &facts, standing)
        })
    }

    fn facts(&self, instance: &Instance) -> Option<(usize, &GroupRecord, HostFacts)> {
        let rollout = self.view.rollout.as_ref()?;
        let facts = rollout.facts(instance.host_id)?;
        let group = facts.group?;
        Some((group, rollout.group_record(group)?, facts))
    }
}
