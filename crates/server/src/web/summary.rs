//! Hosts counted by state and group in one walk over the fleet, for the fleet page.

use std::ops::ControlFlow;

use crate::fleet::Fleet;
use crate::rollout::{HostPosition, HostStatus, Rollouts};

/// Hosts that no group takes, and that are connected.
pub(super) const UNGROUPED: &str = "ungrouped";

/// The states of a host in the order in which they are shown; the last is that of hosts without a group.
pub(super) const STATES: usize = 8;

/// Counts over the whole fleet.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    pub(super) hosts: u64,
    pub(super) connected: u64,
    pub(super) states: [u64; STATES],
    /// The groups of the plan, and last the hosts without one.
    pub(super) groups: Vec<GroupSummary>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct GroupSummary {
    /// Nothing for hosts without a group.
    pub(super) name: Option<String>,
    pub(super) hosts: u64,
    pub(super) states: [u64; STATES],
}

/// A state by its position: its word in addresses, and in the pages.
pub(super) fn state_at(position: usize) -> (&'static str, &'static str) {
    let word = HostStatus::ALL.get(position).map_or(UNGROUPED, |(_, word)| *word);
    (word, in_words(word))
}

/// The index of a host's state.
pub(super) fn state_index(position: HostPosition) -> usize {
    let found = |status| HostStatus::ALL.iter().position(|(known, _)| *known == status);
    position.status.and_then(found).unwrap_or(STATES - 1)
}

/// The word of a state as people say it.
pub(super) fn in_words(word: &'static str) -> &'static str {
    match word {
        "in_flight" => "in flight",
        "timed_out" => "timed out",
        UNGROUPED => "without a group",
        other => other,
    }
}

impl Summary {
    /// Counts all hosts in chunks.
    pub(super) fn of(fleet: &Fleet, rollouts: &Rollouts) -> Self {
        let names: Vec<String> = rollouts
            .statuses()
            .plan()
            .map_or_else(Vec::new, |plan| plan.groups.iter().map(|group| group.name.to_string()).collect());
        let mut summary = Self::default();
        summary.groups.resize(names.len() + 1, GroupSummary::default());
        fleet.walk(None, |some| {
            let statuses = rollouts.statuses();
            for host_record in some {
                let position = statuses.position(host_record);
                let at = state_index(position);
                summary.hosts += 1;
                summary.connected += u64::from(statuses.is_connected(host_record));
                summary.states[at] += 1;
                // Groups may have changed since the scan began; the next scan counts them right.
                let group = position.group.unwrap_or(names.len()).min(names.len());
                summary.groups[group].hosts += 1;
                summary.groups[group].states[at] += 1;
            }
            ControlFlow::Continue(())
        });
        for (group, name) in summary.groups.iter_mut().zip(names) {
            group.name = Some(name);
        }
        summary
    }
}
