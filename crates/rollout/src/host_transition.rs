//! What a decision writes into one host's record.

use jiff::Timestamp;
use refit_types::{GroupRecord, HostRecord, Outcome, Upgrade};

use crate::Plan;
use crate::facts::rolled_back;

/// Longer reasons are cut: every server keeps those of every host.
const LONGEST_REASON: usize = 300;

/// What is to be written into one host's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostTransition {
    /// It becomes a member.
    Admit,
    /// It becomes a member, and has the version already.
    AdmitUpgraded,
    /// It is told to upgrade.
    Start,
    /// It is told so no more, and nothing is counted.
    TakeBack,
    /// It has ended.
    Finish(End),
}

/// How a host's attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It reported the version.
    Upgraded,
    /// Its updater undid the update.
    Undone,
    /// It was lost.
    Lost,
    /// Its version did not change in time.
    TimedOut,
}

/// What a host's record says of its upgrade once it is marked. `record` is that of its group afterwards.
pub fn marked(
    plan: &Plan,
    group: usize,
    record: &GroupRecord,
    instance: &HostRecord,
    mark: HostTransition,
    now: Timestamp,
) -> Option<Upgrade> {
    let before = instance.upgrade.as_deref();
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
    match mark {
        HostTransition::Admit => {}
        HostTransition::AdmitUpgraded => upgrade.outcome = Some(Outcome::Upgraded { at: now }),
        HostTransition::Start => {
            let window = record.window?;
            upgrade.group_start_time = window.start;
            upgrade.group_end_time = window.end;
            upgrade.start_time = Some(now);
            upgrade.attempt = upgrade.attempt.max(reported_attempt(instance)).saturating_add(1);
            upgrade.clear_outcome();
        }
        HostTransition::TakeBack => upgrade.start_time = None,
        HostTransition::Finish(end) => upgrade.outcome = Some(outcome(end, instance, now)),
    }
    upgrade.round = record.round;
    Some(upgrade)
}

/// The last attempt that the host tells of. One that was removed and joined again may remember more than its
/// record, and what it says of an old attempt must not be taken for the new one.
fn reported_attempt(instance: &HostRecord) -> u64 {
    let Some(report) = instance.report.as_ref() else { return 0 };
    let failure = report.updater.as_deref().and_then(|updater| updater.last_failure.as_ref());
    failure.map_or(0, |failure| failure.attempt).max(report.hint_acknowledged)
}

fn outcome(end: End, instance: &HostRecord, now: Timestamp) -> Outcome {
    match end {
        End::Upgraded => Outcome::Upgraded { at: now },
        End::TimedOut => Outcome::TimedOut { at: now },
        End::Lost => {
            let since = instance.last_seen.strftime("%Y-%m-%d %H:%M:%S UTC");
            Outcome::Failed { at: now, reason: format!("its heartbeat was lost at {since}").into() }
        }
        End::Undone => {
            let updater = instance.report.as_ref().and_then(|report| report.updater.as_deref());
            let failure = updater.and_then(|updater| updater.last_failure.as_ref());
            let reason = failure.map_or_else(|| "rolled back by its updater".into(), rolled_back);
            Outcome::Failed {
                at: now,
                reason: reason.chars().take(LONGEST_REASON).collect::<String>().into(),
            }
        }
    }
}
