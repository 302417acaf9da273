//! Hosts counted by state and group in one walk over the fleet, for the fleet page.

use std::ops::ControlFlow;

use crate::fleet::Fleet;
use crate::rollout::{HostPosition, HostStatus, Rollouts};

/// Hosts that no group takes, and that are connected.
pub(super) const UNGROUPED: &str = "ungrouped";

/// The states of a host in the order in which they are shown; the last is that of hosts without a group.
pub(super) const STATES: usize = 8;

/// How the whole fleet stands.
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

/// The position of what a host is.
pub(super) fn position(place: HostPosition) -> usize {
    let found = |standing| HostStatus::ALL.iter().position(|(known, _)| *known == standing);
    place.standing.and_then(found).unwrap_or(STATES - 1)
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
    /// Walks the fleet, and leaves it to others in between.
    pub(super) fn of(fleet: &Fleet, rollouts: &Rollouts) -> Self {
        let names: Vec<String> = rollouts
            .survey()
            .plan()
            .map_or_else(Vec::new, |plan| plan.groups.iter().map(|group| group.name.to_string()).collect());
        let mut summary = Self::default();
        summary.groups.resize(names.len() + 1, GroupSummary::default());
        fleet.walk(None, |some| {
            let survey = rollouts.survey();
            for instance in some {
                let place = survey.place(instance);
                let at = position(place);
                summary.hosts += 1;
                summary.connected += u64::from(survey.is_connected(instance));
                summary.states[at] += 1;
                // Groups may have changed since the walk began: the next one counts them right.
                let group = place.group.unwrap_or(names.len()).min(names.len());
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
