//! Plans and fleets that the preview and simulation tests share.

use jiff::Timestamp;
use refit_rollout::{Behaviour, Cohort, Plan, Simulation};
use refit_types::{
    AutoUpdate, ClusterMaintenanceConfig, Days, Group, Groups, HostLimit, Immediate, PolicySchedule,
    RolloutRecord, Schedule, Selector, TimeZoneName, WeeklyWindow,
};

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn window(start_hour: u8, timezone: &str) -> WeeklyWindow {
    let timezone: TimeZoneName = timezone.parse().unwrap();
    WeeklyWindow { days: Days::ALL, start_hour, window_hours: 4, timezone }
}

/// A group of the hosts in that environment.
pub fn group(name: &str, environment: &str, start_hour: u8, in_flight: u8, requires: &[&str]) -> Group {
    let expression = format!("labels[\"environment\"] == \"{environment}\"");
    Group {
        name: name.parse().unwrap(),
        agents: Selector { node_labels_expression: Some(expression.parse().unwrap()), ..Selector::default() },
        window: window(start_hour, "UTC"),
        jitter_seconds: 10,
        max_in_flight: HostLimit::percent(in_flight).unwrap(),
        timeout_seconds: 300,
        failure_seconds: 60,
        max_failed_before_halt: HostLimit::percent(10).unwrap(),
        max_timeout_before_halt: HostLimit::percent(10).unwrap(),
        requires: requires.iter().map(|name| name.parse().unwrap()).collect(),
        allow_empty: false,
    }
}

pub fn config(groups: Vec<Group>) -> ClusterMaintenanceConfig {
    let policy = PolicySchedule { window: window(0, "UTC"), jitter_seconds: 0 };
    ClusterMaintenanceConfig {
        description: String::new(),
        agent_auto_update: AutoUpdate {
            enabled: true,
            immediate: Immediate::default(),
            regular: policy.clone(),
            critical: policy,
        },
        agent_auto_update_groups: Groups { regular: groups, critical: Vec::new() },
    }
}

pub fn plan(groups: Vec<Group>) -> Plan {
    planned(&config(groups), Schedule::Regular)
}

pub fn planned(config: &ClusterMaintenanceConfig, schedule: Schedule) -> Plan {
    let began_at = at("2026-03-02T00:00:00Z");
    let record = RolloutRecord::begun(1, String::new(), "15.1.1".parse().unwrap(), schedule, began_at);
    Plan::new(&record, Default::default(), config)
}

/// Three groups, each after the one before.
pub fn three() -> Vec<Group> {
    vec![
        group("canary", "canary", 2, 50, &[]),
        group("staging", "staging", 2, 20, &["canary"]),
        group("production", "production", 3, 10, &["staging"]),
    ]
}

pub fn hosts(count: u32, environment: &str) -> Cohort {
    let labels = if environment.is_empty() { String::new() } else { format!("environment={environment}") };
    Cohort {
        node_labels: labels.parse().unwrap(),
        example: format!("{environment}-1"),
        ..Cohort::new(count, "15.1.0".parse().unwrap())
    }
}

pub fn fleet() -> Vec<Cohort> {
    vec![
        hosts(10, "canary"),
        hosts(90, "staging"),
        hosts(400, "production"),
        Cohort { version: "15.1.1".parse().unwrap(), ..hosts(30, "production") },
        Cohort { held: true, ..hosts(5, "production") },
        Cohort { live: false, ..hosts(7, "production") },
        hosts(3, ""),
    ]
}

#[allow(dead_code)]
pub fn simulation(groups: Vec<Group>, behaviour: Behaviour) -> Simulation {
    Simulation { plan: plan(groups), start: at("2026-03-02T00:00:00Z"), fleet: fleet(), behaviour, days: 14 }
}
