//! The maintenance configuration and its groups as values. `config_document` reads and writes their documents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{HostLimit, Schedule, Selector, WeeklyWindow};

/// Groups that one schedule may have. Every server walks all of them at each decision, and a transaction
/// compares the records of all that a group requires.
pub const MAX_GROUPS: usize = 32;

/// The resource `cluster_maintenance_config`: whether, when and in which order agents are updated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterMaintenanceConfig {
    /// What it is for, in the operator's words.
    pub description: String,
    /// The switch, and the policy for hosts that no group takes.
    pub agent_auto_update: AutoUpdate,
    /// The groups of each schedule, in the order in which they take hosts.
    pub agent_auto_update_groups: Groups,
}

/// The switch, and when hosts are updated that present no known UUID or that no group takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoUpdate {
    /// Whether agents are updated at all.
    pub enabled: bool,
    /// For versions that go everywhere at once.
    pub immediate: Immediate,
    /// For ordinary versions.
    pub regular: PolicySchedule,
    /// For critical versions.
    pub critical: PolicySchedule,
}

/// How a version that goes everywhere at once is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Immediate {
    /// Over how many seconds.
    pub jitter_seconds: u32,
}

/// When hosts without a group are updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySchedule {
    /// The hours.
    pub window: WeeklyWindow,
    /// Over how many seconds updates are spread.
    pub jitter_seconds: u32,
}

/// The groups of the schedules that have groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// For ordinary versions.
    pub regular: Vec<Group>,
    /// For critical versions.
    pub critical: Vec<Group>,
}

/// Hosts that are updated together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What it is called.
    pub name: GroupName,
    /// Which hosts it takes.
    pub agents: Selector,
    /// When they may start.
    pub window: WeeklyWindow,
    /// Over how many seconds an updater spreads its start.
    pub jitter_seconds: u32,
    /// How many members may be in flight at the same time.
    pub max_in_flight: HostLimit,
    /// How long after the jitter an update times out if the version has not changed.
    pub timeout_seconds: u32,
    /// How long a started host may be disconnected before it counts as failed.
    pub failure_seconds: u32,
    /// How many may fail before the group halts.
    pub max_failed_before_halt: HostLimit,
    /// How many may time out before the group halts.
    pub max_timeout_before_halt: HostLimit,
    /// The groups that must have succeeded with this version first.
    pub requires: Vec<GroupName>,
    /// Whether it succeeds although no member runs the version.
    pub allow_empty: bool,
}

/// What a group is called: letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(Box<str>);

/// A text that cannot name a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is not a group name; expected 1 to 64 letters, digits, '.', '_' and '-' that start with a letter or digit"
)]
pub struct NotAGroupName {
    found: String,
}

impl Default for AutoUpdate {
    /// Every day, four hours from midnight in UTC.
    fn default() -> Self {
        let schedule = PolicySchedule { window: WeeklyWindow::default(), jitter_seconds: 0 };
        Self { enabled: true, immediate: Immediate::default(), regular: schedule.clone(), critical: schedule }
    }
}

impl Group {
    /// A group of that name that takes every host, at any day, all at once.
    pub fn named(name: GroupName) -> Self {
        Self {
            name,
            agents: Selector::default(),
            window: WeeklyWindow::default(),
            jitter_seconds: 0,
            max_in_flight: HostLimit::ALL,
            timeout_seconds: 60,
            failure_seconds: 0,
            max_failed_before_halt: HostLimit::ZERO,
            max_timeout_before_halt: HostLimit::TENTH,
            requires: Vec::new(),
            allow_empty: false,
        }
    }
}

impl ClusterMaintenanceConfig {
    /// The groups of that schedule; `immediate` has none.
    pub fn groups(&self, schedule: Schedule) -> &[Group] {
        match schedule {
            Schedule::Regular => &self.agent_auto_update_groups.regular,
            Schedule::Critical => &self.agent_auto_update_groups.critical,
            Schedule::Immediate => &[],
        }
    }
}

impl GroupName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = NotAGroupName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_good = (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        match is_good {
            true => Ok(Self(text.into())),
            false => Err(NotAGroupName { found: text.chars().take(80).collect() }),
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for GroupName {
    type Error = NotAGroupName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.0.into()
    }
}
