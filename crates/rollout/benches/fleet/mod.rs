//! The fleet of both benchmarks: five groups, each after the one before.

#[allow(dead_code)]
pub mod half_way;

use jiff::Timestamp;
use refit_rollout::{Cohort, Plan};
use refit_types::{
    AutoUpdate, ClusterMaintenanceConfig, Days, Group, Groups, HostLimit, Immediate, PolicySchedule,
    Revision, RolloutRecord, Schedule, Selector, TimeZoneName, WeeklyWindow,
};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

pub const GROUPS: u32 = 5;
const VERSION: &str = "15.1.1";

pub fn start() -> Timestamp {
    Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 365 * 56)
}

/// Open at all hours, so that the work is measured and not the waiting.
fn window() -> Outcome<WeeklyWindow> {
    let timezone: TimeZoneName = "Europe/Berlin".parse()?;
    Ok(WeeklyWindow { days: Days::ALL, start_hour: 0, window_hours: 24, timezone })
}

pub fn plan() -> Outcome<Plan> {
    let mut groups: Vec<Group> = Vec::new();
    for number in 0..GROUPS {
        let expression = format!("labels[\"ring\"] == \"{number}\"");
        groups.push(Group {
            name: format!("ring-{number}").parse()?,
            agents: Selector { node_labels_expression: Some(expression.parse()?), ..Selector::default() },
            window: window()?,
            jitter_seconds: 10,
            max_in_flight: HostLimit::percent(1).ok_or("1% is a percentage")?,
            timeout_seconds: 600,
            failure_seconds: 60,
            max_failed_before_halt: HostLimit::percent(5).ok_or("5% is a percentage")?,
            max_timeout_before_halt: HostLimit::percent(5).ok_or("5% is a percentage")?,
            requires: groups.last().map(|before| before.name.clone()).into_iter().collect(),
            allow_empty: false,
        });
    }
    let policy = PolicySchedule { window: window()?, jitter_seconds: 0 };
    let config = ClusterMaintenanceConfig {
        description: String::new(),
        agent_auto_update: AutoUpdate {
            enabled: true,
            immediate: Immediate::default(),
            regular: policy.clone(),
            critical: policy,
        },
        agent_auto_update_groups: Groups { regular: groups, critical: Vec::new() },
    };
    let record = RolloutRecord::begun(1, String::new(), VERSION.parse()?, Schedule::Regular, start());
    Ok(Plan::new(&record, Revision::default(), &config))
}

#[allow(dead_code)]
pub fn hosts(count: u32) -> Outcome<Vec<Cohort>> {
    let mut fleet = Vec::new();
    for ring in 0..GROUPS {
        fleet.push(Cohort {
            node_labels: format!("ring={ring}").parse()?,
            ..Cohort::new(count / GROUPS, "15.1.0".parse()?)
        });
    }
    Ok(fleet)
}
