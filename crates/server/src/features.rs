//! The feature level of this release, and which documents need it of every server. A release that adds a gate (a field
//! or a value that keeps hosts from being upgraded) increases the level here and extends `needed`.

use refit_types::{AutoupdateVersion, FeatureLevel, HostLimit, Resource, Schedule};

/// Limits in hosts and in fractions of a percent. Servers below it take a number for a percentage.
const HOST_LIMITS: FeatureLevel = FeatureLevel::new(2);
/// A pause that is also for immediate versions. Servers below it tell every host of such a version, paused or not.
const PAUSED_IMMEDIATE: FeatureLevel = FeatureLevel::new(2);

/// The features of one release of the server.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Its level.
    pub level: FeatureLevel,
    /// The level that a document needs of every server. A document that uses no gate of a later level needs none of
    /// it, whatever else it says.
    pub needed: fn(&Resource) -> FeatureLevel,
    /// The level that a version needs of every server while the rollout is paused, besides that of its document.
    pub needed_while_paused: fn(&AutoupdateVersion) -> FeatureLevel,
}

impl Features {
    /// Those of this release.
    pub fn current() -> Self {
        Self { level: HOST_LIMITS.max(PAUSED_IMMEDIATE), needed, needed_while_paused }
    }
}

fn needed(resource: &Resource) -> FeatureLevel {
    let Resource::ClusterMaintenanceConfig(config) = resource else { return FeatureLevel::NONE };
    let groups = &config.agent_auto_update_groups;
    let mut limits =
        groups.regular.iter().chain(&groups.critical).flat_map(|group| {
            [group.max_in_flight, group.max_failed_before_halt, group.max_timeout_before_halt]
        });
    let allows_empty = groups.regular.iter().chain(&groups.critical).any(|group| group.allow_empty);
    let is_whole = |limit: HostLimit| matches!(limit, HostLimit::Share(share) if share.whole().is_some());
    match limits.all(is_whole) && !allows_empty {
        true => FeatureLevel::NONE,
        false => HOST_LIMITS,
    }
}

fn needed_while_paused(version: &AutoupdateVersion) -> FeatureLevel {
    match version.agent_version_schedule {
        Schedule::Immediate => PAUSED_IMMEDIATE,
        Schedule::Regular | Schedule::Critical => FeatureLevel::NONE,
    }
}

impl Default for Features {
    fn default() -> Self {
        Self::current()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_that_older_servers_would_misread_needs_the_level_of_every_server() {
        let level_with = |schedule: &str, field: &str, limit: serde_json::Value| {
            let group = json!({ "name": "a", field: limit });
            let spec = json!({ "agent_auto_update_groups": { schedule: [{ "name": "b" }, group] } });
            let document = json!({ "kind": "cluster_maintenance_config", "spec": spec });
            (Features::current().needed)(&Resource::from_document(document).unwrap().0)
        };
        for field in ["max_in_flight", "max_failed_before_halt", "max_timeout_before_halt"] {
            for schedule in ["regular", "critical"] {
                for limit in [json!(5), json!(0), json!("0.5%"), json!("12.25%")] {
                    assert_eq!(
                        level_with(schedule, field, limit),
                        FeatureLevel::new(2),
                        "{schedule} {field}"
                    );
                }
                for limit in [json!("0%"), json!("5%"), json!("100%")] {
                    assert_eq!(level_with(schedule, field, limit), FeatureLevel::NONE, "{schedule} {field}");
                }
            }
        }
        assert_eq!(level_with("regular", "allow_empty", json!(true)), FeatureLevel::new(2));
        assert_eq!(level_with("regular", "allow_empty", json!(false)), FeatureLevel::NONE);
    }
}
