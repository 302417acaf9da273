//! Groups of hosts that are equal for a rollout: previews and simulations work on these instead of single hosts.

use refit_types::{Labels, Version};

use crate::Plan;

/// Hosts that are equal in everything that matters to a rollout: a million hosts form a handful of cohorts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cohort {
    /// How many.
    pub count: u32,
    /// The name of one of them, for people to find it.
    pub example: String,
    /// Their labels as resources.
    pub node_labels: Labels,
    /// The labels of their agents.
    pub instance_labels: Labels,
    /// What they run.
    pub version: Version,
    /// Whether their updaters refuse the version.
    pub held: bool,
    /// Whether they are connected.
    pub live: bool,
}

impl Cohort {
    /// Connected hosts without labels that run that version and accept another.
    pub fn new(count: u32, version: Version) -> Self {
        Self {
            count,
            example: String::new(),
            node_labels: Labels::default(),
            instance_labels: Labels::default(),
            version,
            held: false,
            live: true,
        }
    }

    /// The group that takes them.
    pub fn group(&self, plan: &Plan) -> Option<usize> {
        plan.group_of(&self.node_labels, &self.instance_labels)
    }
}
