//! The operators' settings as the engine uses them: one epoch, its groups, and the groups that each requires.

use jiff::Timestamp;
use refit_types::{
    AutoUpdate, ClusterMaintenanceConfig, Expression, Group, GroupName, Labels, Revision, RolloutRecord,
    Schedule, Version,
};
use sha2::{Digest, Sha256};

/// The settings of operators for one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Which epoch.
    pub epoch: u64,
    /// When its record was last written.
    pub revision: Revision,
    /// When it began.
    pub began_at: Timestamp,
    /// The version that is rolled out.
    pub version: Version,
    /// By which schedule.
    pub schedule: Schedule,
    /// Whether, and how hosts without a group are updated.
    pub policy: AutoUpdate,
    /// Since when no host is started.
    pub paused: Option<Timestamp>,
    /// The groups of the schedule, in the order in which they take hosts.
    pub groups: Vec<Group>,
    requires: Vec<Vec<usize>>,
}

impl Plan {
    /// The plan for the epoch of that record.
    pub fn new(record: &RolloutRecord, revision: Revision, config: &ClusterMaintenanceConfig) -> Self {
        let groups = config.groups(record.schedule).to_vec();
        Self {
            epoch: record.epoch,
            revision,
            began_at: record.began_at,
            version: record.version.clone(),
            schedule: record.schedule,
            policy: config.agent_auto_update.clone(),
            paused: record.paused,
            requires: (0..groups.len()).map(|group| all_required(&groups, group)).collect(),
            groups,
        }
    }

    /// The first group, in order, that takes a host with these labels.
    pub fn group_of(&self, node_labels: &Labels, instance_labels: &Labels) -> Option<usize> {
        self.groups.iter().position(|group| group.agents.selects(node_labels, instance_labels))
    }

    /// The groups that must have succeeded before that one, directly or not.
    pub fn requires(&self, group: usize) -> &[usize] {
        self.requires.get(group).map_or(&[], Vec::as_slice)
    }

    /// Where in the plan the group of that name is.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.name.as_str() == name)
    }
}

fn all_required(groups: &[Group], group: usize) -> Vec<usize> {
    let position = |name: &GroupName| groups.iter().position(|group| group.name == *name);
    let mut found: Vec<usize> = Vec::new();
    let mut next = vec![group];
    while let Some(group) = next.pop() {
        for required in groups[group].requires.iter().filter_map(position) {
            if !found.contains(&required) {
                found.push(required);
                next.push(required);
            }
        }
    }
    found.sort_unstable();
    found
}

/// A digest of everything whose change begins a new epoch: version, schedule, and the names, selectors, requirements
/// and order of its groups.
pub fn fingerprint(version: &Version, schedule: Schedule, config: &ClusterMaintenanceConfig) -> String {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    };
    add(&version.to_string());
    add(schedule.as_str());
    for group in config.groups(schedule) {
        add(group.name.as_str());
        for expression in [&group.agents.node_labels_expression, &group.agents.instance_labels_expression] {
            add(if expression.is_some() { "selects" } else { "takes all" });
            add(expression.as_ref().map_or("", Expression::source));
        }
        add(&group.requires.len().to_string());
        for required in &group.requires {
            add(required.as_str());
        }
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
