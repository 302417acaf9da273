//! How far a rollout has come, as a preview needs it: what has succeeded, what is open, and what operators stopped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use refit_types::{GroupName, Halt, Span};
use serde::Serialize;

/// Where the previewed rollout stands. The default is that of one that has not begun.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Since when an operator keeps every host from starting.
    pub paused: Option<Timestamp>,
    /// The groups of which something is known.
    pub groups: BTreeMap<GroupName, GroupStanding>,
}

/// Where one group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupStanding {
    /// How far it has come.
    pub phase: GroupPhase,
    /// Since when an operator keeps its hosts from starting.
    pub paused: Option<Timestamp>,
}

/// How far a group has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupPhase {
    /// It has not opened.
    #[default]
    Waiting,
    /// This window is open.
    Open(Span),
    /// It is done.
    Succeeded,
    /// It has halted; for a newer cause the details are not known.
    Halted(Option<Halt>),
}

impl Standing {
    /// What remains when another rollout begins: a pause outlasts a new version, everything else starts over.
    pub fn for_new_epoch(mut self) -> Self {
        self.groups.values_mut().for_each(|group| group.phase = GroupPhase::Waiting);
        self
    }

    pub(super) fn of(&self, group: &GroupName) -> GroupStanding {
        self.groups.get(group).copied().unwrap_or_default()
    }
}
