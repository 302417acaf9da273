//! Where hosts stand in the rollout, for pages and lists.

use std::sync::Arc;

use refit_rollout::{HostFacts, Plan};
use refit_types::{GroupRecord, HostRecord};

use super::status::reason;
use super::{HostStatus, Rollouts};
use crate::fleet::FleetView;

/// Where hosts stand, all at one moment.
pub(crate) struct HostStatuses {
    view: Arc<FleetView>,
}

/// Where one host stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostPosition {
    /// Its group, by its position in the plan.
    pub(crate) group: Option<usize>,
    /// How far it is; nothing for a host that no group takes, and that is connected.
    pub(crate) standing: Option<HostStatus>,
}

impl Rollouts {
    /// Asks where hosts stand.
    pub(crate) fn survey(&self) -> HostStatuses {
        HostStatuses { view: self.fleet.view() }
    }
}

impl HostStatuses {
    /// What is rolled out, if anything.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.view.rollout.as_ref().map(|rollout| rollout.plan())
    }

    /// Whether some server hears the host.
    pub(crate) fn is_connected(&self, instance: &HostRecord) -> bool {
        self.view.lost_since(instance).is_none()
    }

    pub(crate) fn place(&self, instance: &HostRecord) -> HostPosition {
        match self.facts(instance) {
            Some((group, record, facts)) => {
                HostPosition { group: Some(group), standing: Some(HostStatus::of(&facts, record)) }
            }
            None => HostPosition {
                group: None,
                standing: (!self.is_connected(instance)).then_some(HostStatus::Away),
            },
        }
    }

    /// Why it stands there, in words; empty if that goes without saying.
    pub(crate) fn reason(&self, instance: &HostRecord, place: HostPosition) -> String {
        let found = self.plan().zip(self.facts(instance)).zip(place.standing);
        found.map_or_else(String::new, |((plan, (_, _, facts)), standing)| {
            reason(&self.view, plan, instance, &facts, standing)
        })
    }

    fn facts(&self, instance: &HostRecord) -> Option<(usize, &GroupRecord, HostFacts)> {
        let rollout = self.view.rollout.as_ref()?;
        let facts = rollout.facts(instance.host_id)?;
        let group = facts.group?;
        Some((group, rollout.group_record(group)?, facts))
    }
}
