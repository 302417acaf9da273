//! Group and status of single hosts, for pages and lists. Reads one view, so that all hosts are consistent.

use std::sync::Arc;

use refit_rollout::{HostFacts, Plan};
use refit_types::{GroupRecord, HostRecord};

use super::status::reason;
use super::{HostStatus, Rollouts};
use crate::fleet::FleetView;

/// Answers questions about hosts from one view.
pub(crate) struct HostStatuses {
    view: Arc<FleetView>,
}

/// A host's group and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostPosition {
    /// Its group, by its position in the plan.
    pub(crate) group: Option<usize>,
    /// Its status; none for a connected host without a group.
    pub(crate) status: Option<HostStatus>,
}

impl Rollouts {
    /// The statuses of hosts in the current view.
    pub(crate) fn statuses(&self) -> HostStatuses {
        HostStatuses { view: self.fleet.view() }
    }
}

impl HostStatuses {
    /// What is rolled out, if anything.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.view.rollout.as_ref().map(|rollout| rollout.plan())
    }

    /// Whether the host is connected to some server.
    pub(crate) fn is_connected(&self, host_record: &HostRecord) -> bool {
        self.view.lost_since(host_record).is_none()
    }

    pub(crate) fn position(&self, host_record: &HostRecord) -> HostPosition {
        match self.facts(host_record) {
            Some((group, record, facts)) => {
                HostPosition { group: Some(group), status: Some(HostStatus::of(&facts, record)) }
            }
            None => HostPosition {
                group: None,
                status: (!self.is_connected(host_record)).then_some(HostStatus::Away),
            },
        }
    }

    /// The reason of its status, in words; empty if there is nothing to explain.
    pub(crate) fn reason(&self, host_record: &HostRecord, position: HostPosition) -> String {
        let found = self.plan().zip(self.facts(host_record)).zip(position.status);
        found.map_or_else(String::new, |((plan, (_, _, facts)), status)| {
            reason(&self.view, plan, host_record, &facts, status)
        })
    }

    fn facts(&self, host_record: &HostRecord) -> Option<(usize, &GroupRecord, HostFacts)> {
        let rollout = self.view.rollout.as_ref()?;
        let facts = rollout.facts(host_record.host_id)?;
        let group = facts.group?;
        Some((group, rollout.group_record(group)?, facts))
    }
}
