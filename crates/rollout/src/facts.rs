use jiff::Timestamp;
use refit_types::{HostId, Instance, Outcome, Report, UpdaterStatus, Version};

use crate::Plan;

/// What the engine needs to know of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Which host.
    pub host: HostId,
    /// Its group: where it is marked, or else the one that would take it.
    pub group: Option<usize>,
    /// Whether it is marked in this epoch.
    pub member: bool,
    /// When it was told to upgrade in this epoch.
    pub started: Option<Timestamp>,
    /// What came of it in this epoch.
    pub ended: Option<Ended>,
    /// How often it was told to upgrade, over all epochs.
    pub attempt: u64,
    /// Whether it reports the version.
    pub on_version: bool,
    /// Whether its updater will not do it.
    pub held: bool,
    /// Whether its agent has woken its updater for the present attempt.
    pub acknowledged: bool,
    /// Whether its updater undid the present attempt.
    pub undone: bool,
    /// Since when no server hears it.
    pub lost_since: Option<Timestamp>,
}

/// What came of a host, and for failures in which round of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has the version.
    Upgraded,
    /// It failed.
    Failed {
        /// In that round.
        round: u32,
    },
    /// It took too long.
    TimedOut {
        /// In that round.
        round: u32,
    },
}

impl HostFacts {
    /// What a host's record says, for that plan.
    pub fn of(plan: &Plan, instance: &Instance, lost_since: Option<Timestamp>) -> Self {
        let upgrade = instance.upgrade.as_deref();
        let attempt = upgrade.map_or(0, |upgrade| upgrade.attempt);
        let marked = upgrade
            .filter(|upgrade| upgrade.epoch == plan.epoch)
            .and_then(|upgrade| Some((plan.position(upgrade.group_name.as_str())?, upgrade)));
        let report = instance.report.as_ref();
        let taken = || report.and_then(|report| plan.group_of(&report.node_labels, &report.instance_labels));
        let upgrade = marked.map(|(_, upgrade)| upgrade);
        let ended = upgrade.and_then(|upgrade| {
            Some(match upgrade.outcome.as_ref()? {
                Outcome::Upgraded { .. } => Ended::Upgraded,
                Outcome::Failed { .. } => Ended::Failed { round: upgrade.round },
                Outcome::TimedOut { .. } => Ended::TimedOut { round: upgrade.round },
            })
        });
        Self {
            host: instance.host_id,
            group: marked.map(|(group, _)| group).or_else(taken),
            member: marked.is_some(),
            started: upgrade.and_then(|upgrade| upgrade.start_time),
            ended,
            attempt,
            on_version: report.is_some_and(|report| report.version == plan.version),
            held: report.is_some_and(|report| hold(plan, report).is_some()),
            acknowledged: attempt > 0 && report.is_some_and(|report| report.hint_acknowledged == attempt),
            undone: report.is_some_and(|report| undone(plan, report, attempt)),
            lost_since,
        }
    }

    /// Why the host's updater will not do what the plan wants, in words.
    pub fn held_because(plan: &Plan, instance: &Instance) -> Option<String> {
        hold(plan, instance.report.as_ref()?)
    }
}

fn hold(plan: &Plan, report: &Report) -> Option<String> {
    held_by(report.updater.as_deref()?, &plan.version)
}

/// Why an updater would not go to that version, in words.
pub fn held_by(updater: &UpdaterStatus, version: &Version) -> Option<String> {
    match (&updater.held, &updater.pinned_version) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Some(pinned)) if pinned != version => Some(format!("pinned to {pinned} on the host")),
        _ if !updater.agent_updates_enabled => Some("updates are disabled on the host".into()),
        _ => None,
    }
}

fn undone(plan: &Plan, report: &Report, attempt: u64) -> bool {
    let failure = report.updater.as_deref().and_then(|updater| updater.last_failure.as_ref());
    attempt > 0
        && failure.is_some_and(|failure| failure.attempt == attempt && failure.version == plan.version)
}
