//! What the engine needs to know about a host, derived from its record and its connection.

use jiff::Timestamp;
use refit_types::{
    FailedAgent, HostId, HostRecord, Outcome, Report, UpdateFailure, UpdaterStatus, Upgrade, Version,
};

use crate::Plan;
use crate::host_transition::LONGEST_REASON;

/// The input of the engine for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Which host.
    pub host: HostId,
    /// The group that it is a member of, or else the one that would take it.
    pub group: Option<usize>,
    /// Whether it is a member in this epoch.
    pub member: bool,
    /// Whether it is no member, and was told to upgrade in this epoch all the same.
    pub newcomer: bool,
    /// When it was told to upgrade: in this epoch, or in an earlier one and has not settled.
    pub started: Option<Timestamp>,
    /// Whether it was told in an earlier epoch: it has a slot until it settles, and is not told now.
    pub carried: bool,
    /// Whether it has reported the end of an attempt of an earlier epoch.
    pub settled: bool,
    /// How its upgrade ended in this epoch, if it has.
    pub ended: Option<HostOutcome>,
    /// How often it was told to upgrade, over all epochs.
    pub attempt: u64,
    /// Whether it has the version, and its updater, if one is in charge, agrees.
    pub on_version: bool,
    /// Whether it runs the version but its updater has not committed it yet.
    pub proving: bool,
    /// Whether its updater refuses to go to the version.
    pub held: bool,
    /// Whether its agent has woken its updater for the current attempt.
    pub acknowledged: bool,
    /// Whether its updater rolled the current attempt back.
    pub undone: bool,
    /// Whether its updater ended the current attempt before anything was switched, because it was told to wait again.
    pub called_off: bool,
    /// Whether it is in flight and was so when hosts were last stopped, by a pause or the off switch.
    pub suspended: bool,
    /// Since when it has been disconnected from all servers.
    pub lost_since: Option<Timestamp>,
}

/// How a host's upgrade ended, and for failures in which round of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostOutcome {
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
    /// The facts of a host record under that plan.
    pub fn of(plan: &Plan, host_record: &HostRecord, lost_since: Option<Timestamp>) -> Self {
        let last = host_record.upgrade.as_deref();
        let attempt = last.map_or(0, |upgrade| upgrade.attempt);
        let report = host_record.report.as_ref();
        let settled = last.is_some_and(|upgrade| has_settled(upgrade, report));
        let place = |upgrade: &Upgrade| plan.position(upgrade.group_name.as_str());
        let membership = last.filter(|upgrade| upgrade.epoch == plan.epoch).and_then(place);
        let is_newcomer =
            |upgrade: &&Upgrade| upgrade.newcomer.is_some_and(|newcomer| newcomer.epoch == plan.epoch);
        let guest = last.filter(|_| membership.is_none()).filter(is_newcomer).and_then(place);
        let is_present = membership.or(guest).is_some();
        let is_carried = |upgrade: &Upgrade| match is_present {
            true => upgrade.carried,
            false => upgrade.epoch < plan.epoch && !settled,
        };
        let carried = last.is_some_and(|upgrade| {
            upgrade.start_time.is_some() && upgrade.outcome.is_none() && is_carried(upgrade)
        });
        let upgrade = last.filter(|_| is_present);
        let taken = || report.and_then(|report| plan.group_of(&report.node_labels, &report.instance_labels));
        let ended = upgrade.and_then(|upgrade| {
            Some(match upgrade.outcome.as_ref()? {
                Outcome::Upgraded { .. } => HostOutcome::Upgraded,
                Outcome::Failed { .. } => HostOutcome::Failed { round: upgrade.round },
                Outcome::TimedOut { .. } => HostOutcome::TimedOut { round: upgrade.round },
            })
        });
        Self {
            host: host_record.host_id,
            group: membership.or(guest).or_else(taken),
            member: membership.is_some(),
            newcomer: guest.is_some(),
            started: last.filter(|_| is_present || carried).and_then(|upgrade| upgrade.start_time),
            carried,
            settled: carried && settled,
            ended,
            attempt,
            on_version: report.is_some_and(|report| has_arrived(plan, report)),
            proving: report.is_some_and(|report| report.version == plan.version && is_proving(report)),
            held: report.is_some_and(|report| hold(plan, report, attempt).is_some()),
            acknowledged: attempt > 0 && report.is_some_and(|report| report.hint_acknowledged == attempt),
            undone: report.is_some_and(|report| undone(plan, report, attempt).is_some()),
            called_off: report.is_some_and(|report| called_off(report, attempt)),
            suspended: upgrade.is_some_and(is_suspended) && !carried,
            lost_since,
        }
    }

    /// Why the host's updater refuses the plan's version, in words.
    pub fn held_because(plan: &Plan, host_record: &HostRecord) -> Option<String> {
        let attempt = host_record.upgrade.as_deref().map_or(0, |upgrade| upgrade.attempt);
        hold(plan, host_record.report.as_ref()?, attempt)
    }

    /// Why the host's attempt failed, in words. The updater's own reason wins, even if it arrives only after the host
    /// was counted as lost: a host sends no heartbeats during a rollback.
    pub fn failed_because(plan: &Plan, host_record: &HostRecord) -> Option<String> {
        let upgrade = host_record.upgrade.as_deref()?;
        let undone = host_record.report.as_ref().and_then(|report| undone(plan, report, upgrade.attempt));
        match (undone, &upgrade.outcome) {
            (Some(failure), _) => Some(rolled_back(failure)),
            (None, Some(Outcome::Failed { reason, .. })) => Some(reason.to_string()),
            _ => None,
        }
    }

    /// What is known of the agent of the host's failed attempt.
    pub fn failed_agent<'a>(plan: &Plan, host_record: &'a HostRecord) -> Option<&'a FailedAgent> {
        let attempt = host_record.upgrade.as_deref()?.attempt;
        undone(plan, host_record.report.as_ref()?, attempt)?.agent.as_deref()
    }

    /// What keeps the host's updater from beginning the current attempt, in words. The host keeps its slot and its
    /// deadline meanwhile.
    pub fn obstacle(plan: &Plan, host_record: &HostRecord) -> Option<String> {
        let attempt = host_record.upgrade.as_deref()?.attempt;
        let obstacle = host_record.report.as_ref()?.updater.as_deref()?.current_obstacle()?;
        let is_of_version = obstacle.version.as_ref().is_none_or(|version| *version == plan.version);
        (attempt > 0 && obstacle.attempt == attempt && is_of_version)
            .then(|| obstacle.to_string().chars().take(LONGEST_REASON).collect())
    }
}

/// Why an attempt failed, in words. A version whose binaries do not run is refused before anything is switched.
pub(crate) fn rolled_back(failure: &UpdateFailure) -> String {
    let what = if failure.step == "validate" { "refused" } else { "rolled back" };
    format!("{what} by its updater at {}: {}", failure.step, failure.reason)
}

/// Whether a heartbeat reports that its host has the plan's version for good. A host that runs it may still roll back:
/// it does not count until its updater has recorded the version as installed.
pub fn has_arrived(plan: &Plan, report: &Report) -> bool {
    report.version == plan.version && !is_proving(report)
}

/// Whether the active updater's recorded version differs from the running one: the update is on probation, or the
/// updater was interrupted and corrects its record at the next run. Or the version was installed while no agent ran, and
/// may still go back to the one before.
fn is_proving(report: &Report) -> bool {
    let Some(updater) = report.updater.as_deref().filter(|updater| updater.agent_updates_enabled) else {
        return false;
    };
    let installed = updater.agent_version_installed.as_ref();
    let is_unproved = updater.unproved && updater.agent_version_previous.is_some();
    is_unproved || installed.is_some_and(|installed| *installed != report.version)
}

fn hold(plan: &Plan, report: &Report, attempt: u64) -> Option<String> {
    held_by(report.updater.as_deref()?, &plan.version, Some(attempt))
}

/// Why an updater would refuse that version, in words. A hold is about one version and one attempt: the host's last
/// one, if it is known, or 0 where attempts are not counted. An updater that does not say what its hold is about is taken to mean the
/// version that it was asked for, which it reports with it.
pub fn held_by(updater: &UpdaterStatus, version: &Version, attempt: Option<u64>) -> Option<String> {
    let is_about_this = match &updater.held_target {
        Some(target) => {
            target.version == *version
                && (target.attempt == 0 || attempt.is_none_or(|attempt| target.attempt == attempt))
        }
        None => updater.agent_version_desired.as_ref() == Some(version),
    };
    match (updater.held.as_ref().filter(|_| is_about_this), &updater.pinned_version) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Some(pinned)) if pinned != version => Some(format!("pinned to {pinned} on the host")),
        _ if !updater.agent_updates_enabled => Some("updates are disabled on the host".into()),
        _ => None,
    }
}

/// Whether the host has reported how its last attempt ended: rolled back, called off, held, or on the version for good.
fn has_settled(upgrade: &Upgrade, report: Option<&Report>) -> bool {
    let Some(report) = report else { return false };
    let is_last = |attempt: u64| attempt > 0 && attempt == upgrade.attempt;
    let reported = report.updater.as_deref().is_some_and(|updater| {
        let failed = updater.last_failure.as_ref().map(|failure| failure.attempt);
        let held = updater.held_target.as_ref().map(|target| target.attempt);
        [failed, held].into_iter().flatten().any(is_last)
    });
    let has_arrived = upgrade.version.as_deref() == Some(&report.version) && !is_proving(report);
    reported || has_arrived || called_off(report, upgrade.attempt)
}

fn is_suspended(upgrade: &Upgrade) -> bool {
    let is_current = upgrade.suspended.as_ref().is_some_and(|suspended| suspended.attempt == upgrade.attempt);
    is_current && upgrade.start_time.is_some() && upgrade.outcome.is_none()
}

fn called_off(report: &Report, attempt: u64) -> bool {
    let target = report.updater.as_deref().and_then(|updater| updater.called_off.as_ref());
    attempt > 0 && target.is_some_and(|target| target.attempt == attempt)
}

fn undone<'a>(plan: &Plan, report: &'a Report, attempt: u64) -> Option<&'a UpdateFailure> {
    let failure = report.updater.as_deref()?.version_failure()?;
    (attempt > 0 && failure.attempt == attempt && failure.version == plan.version).then_some(failure)
}

#[cfg(test)]
mod tests {
    use refit_types::{Edition, Labels, RotationMark, Session, UpgraderKind};

    use super::*;

    fn report(runs: &str, updater: Option<UpdaterStatus>) -> Report {
        Report {
            version: runs.parse().unwrap(),
            edition: Edition::Oss.into(),
            node_labels: Labels::default(),
            instance_labels: Labels::default(),
            upgrader: UpgraderKind::Binary.into(),
            updater: updater.map(Box::new),
            session: Session { id: uuid::Uuid::nil(), started_at: Timestamp::UNIX_EPOCH },
            rotation: RotationMark::default(),
            hint_acknowledged: 0,
            platform: None,
        }
    }

    #[test]
    fn a_running_version_is_on_probation_until_the_active_updater_commits_it() {
        let installed = |version: &str, enabled| {
            let agent_version_installed = version.parse().ok();
            Some(UpdaterStatus {
                agent_version_installed,
                agent_updates_enabled: enabled,
                ..UpdaterStatus::default()
            })
        };
        let proving = |updater| is_proving(&report("1.1.0", updater));
        assert!(proving(installed("1.0.0", true)));
        assert!(!proving(installed("1.1.0", true)));
        assert!(!proving(installed("1.0.0", false)), "it says what it did when it was last in charge");
        assert!(!proving(installed("", true)) && !proving(None), "nobody can tell");
        let unproved = |previous: &str| {
            let agent_version_previous = previous.parse().ok();
            installed("1.1.0", true).map(|status| UpdaterStatus {
                unproved: true,
                agent_version_previous,
                ..status
            })
        };
        assert!(proving(unproved("1.0.0")), "it was installed while no agent ran");
        assert!(!proving(unproved("")), "a first installation cannot go back");
    }
}
