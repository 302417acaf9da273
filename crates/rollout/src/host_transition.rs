//! The state changes of a host in a rollout, and how each changes its record. No I/O: the caller stores the result.

use jiff::Timestamp;
use refit_types::{GroupRecord, HostRecord, Outcome, Upgrade};

use crate::Plan;
use crate::facts::rolled_back;

/// Longer reasons are truncated: every server keeps those of all hosts in memory.
pub(crate) const LONGEST_REASON: usize = 300;

/// One state change of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostTransition {
    /// It becomes a member.
    Admit,
    /// It becomes a member, and has the version already.
    AdmitUpgraded,
    /// It is told to upgrade.
    Start,
    /// The start is revoked and not counted.
    Revoke,
    /// Its attempt has ended.
    Finish(AttemptEnd),
}

/// How a host's attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It reported the version.
    Upgraded,
    /// Its updater rolled the update back.
    Undone,
    /// It was disconnected for too long.
    Lost,
    /// Its version did not change in time.
    TimedOut,
}

/// The upgrade part of a host's record after a transition. `record` is that of its group after the same decision.
pub fn apply_transition(
    plan: &Plan,
    group: usize,
    record: &GroupRecord,
    host_record: &HostRecord,
    transition: HostTransition,
    now: Timestamp,
) -> Option<Upgrade> {
    let before = host_record.upgrade.as_deref();
    let present = before.filter(|upgrade| upgrade.epoch == plan.epoch).cloned();
    let mut upgrade = match present {
        Some(present) => present,
        None => {
            let window = record.window?;
            let mut upgrade = Upgrade {
                epoch: plan.epoch,
                group_schedule: plan.schedule,
                group_name: plan.groups.get(group)?.name.clone(),
                group_start_time: window.start,
                group_end_time: window.end,
                start_time: None,
                attempt: before.map_or(0, |upgrade| upgrade.attempt),
                round: record.round,
                outcome: None,
                unknown: before.map(|upgrade| upgrade.unknown.clone()).unwrap_or_default(),
            };
            upgrade.clear_outcome();
            upgrade
        }
    };
    match transition {
        HostTransition::Admit => {}
        HostTransition::AdmitUpgraded => upgrade.outcome = Some(Outcome::Upgraded { at: now }),
        HostTransition::Start => {
            let window = record.window?;
            upgrade.group_start_time = window.start;
            upgrade.group_end_time = window.end;
            upgrade.start_time = Some(now);
            upgrade.attempt = upgrade.attempt.max(reported_attempt(host_record)).saturating_add(1);
            upgrade.clear_outcome();
        }
        HostTransition::Revoke => upgrade.start_time = None,
        HostTransition::Finish(end) => upgrade.outcome = Some(outcome(end, host_record, now)),
    }
    upgrade.round = record.round;
    Some(upgrade)
}

/// The last attempt that the host reports. A host that was removed and joined again may report a higher attempt than
/// its new record has, and its report about that attempt must not be attributed to a new one.
fn reported_attempt(host_record: &HostRecord) -> u64 {
    let Some(report) = host_record.report.as_ref() else { return 0 };
    let updater = report.updater.as_deref();
    let failure = updater.and_then(|updater| updater.last_failure.as_ref()).map(|failure| failure.attempt);
    let obstacle = updater.and_then(|updater| updater.obstacle.as_ref()).map(|obstacle| obstacle.attempt);
    failure.max(obstacle).unwrap_or(0).max(report.hint_acknowledged)
}

fn outcome(end: AttemptEnd, host_record: &HostRecord, now: Timestamp) -> Outcome {
    match end {
        AttemptEnd::Upgraded => Outcome::Upgraded { at: now },
        AttemptEnd::TimedOut => Outcome::TimedOut { at: now },
        AttemptEnd::Lost => {
            let since = host_record.last_seen.strftime("%Y-%m-%d %H:%M:%S UTC");
            Outcome::Failed { at: now, reason: format!("its heartbeat was lost at {since}").into() }
        }
        AttemptEnd::Undone => {
            let updater = host_record.report.as_ref().and_then(|report| report.updater.as_deref());
            let failure = updater.and_then(|updater| updater.last_failure.as_ref());
            let reason = failure.map_or_else(|| "rolled back by its updater".into(), rolled_back);
            Outcome::Failed {
                at: now,
                reason: reason.chars().take(LONGEST_REASON).collect::<String>().into(),
            }
        }
    }
}
