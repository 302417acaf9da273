//! Hosts that are alike to a plan, counted as one.

use refit_types::{Labels, Version};

use crate::Plan;

/// Hosts that are alike in all that a rollout asks of them: a million hosts are a handful of these.
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
    /// Whether their updaters will not do it.
    pub held: bool,
    /// Whether they can be heard.
    pub live: bool,
}

impl Cohort {
    /// So many hosts without labels that run that version and would take another.
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
