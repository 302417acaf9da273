//! The state changes of a host in a rollout, and how each changes its record. No I/O: the caller stores the result.

use jiff::{SignedDuration, Timestamp};
use refit_types::{GroupRecord, HostRecord, NewcomerStart, Outcome, Suspension, Upgrade};

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
    /// It becomes a member, and has a slot: it was told as a newcomer, or in an earlier epoch, and has not settled.
    AdmitInFlight,
    /// It is told to upgrade.
    Start,
    /// It is told to upgrade before it becomes a member.
    StartNewcomer,
    /// It gets a slot before it becomes a member, because it was told in an earlier epoch and has not settled.
    CarryNewcomer,
    /// It has settled after it was told in an earlier epoch, and gives its slot back.
    Settle,
    /// The start is revoked and not counted.
    Revoke,
    /// It is in flight while no host may be told to upgrade.
    Suspend,
    /// It may be told again, and its deadline moves by the time that has passed since it was suspended.
    Resume,
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
    let is_newcomer =
        |upgrade: &Upgrade| upgrade.newcomer.is_some_and(|newcomer| newcomer.epoch == plan.epoch);
    let mut upgrade = match (present, before) {
        (Some(present), _) => present,
        (None, Some(guest)) if is_newcomer(guest) => guest.clone(),
        (None, before) => {
            let window = record.window?;
            let mut upgrade = Upgrade {
                epoch: before.map_or(0, |upgrade| upgrade.epoch),
                group_schedule: plan.schedule,
                group_name: plan.groups.get(group)?.name.clone(),
                group_start_time: window.start,
                group_end_time: window.end,
                start_time: before.and_then(|upgrade| upgrade.start_time),
                attempt: before.map_or(0, |upgrade| upgrade.attempt),
                version: before.and_then(|upgrade| upgrade.version.clone()),
                carried: true,
                newcomer: None,
                suspended: None,
                round: record.round,
                outcome: None,
                unknown: before.map(|upgrade| upgrade.unknown.clone()).unwrap_or_default(),
            };
            upgrade.clear_outcome();
            upgrade
        }
    };
    match transition {
        HostTransition::Admit => {
            admit(&mut upgrade, plan, record);
            upgrade.clear_outcome();
            clear_start(&mut upgrade);
        }
        HostTransition::AdmitUpgraded => {
            admit(&mut upgrade, plan, record);
            clear_start(&mut upgrade);
            upgrade.outcome = Some(Outcome::Upgraded { at: now });
        }
        HostTransition::AdmitInFlight => admit(&mut upgrade, plan, record),
        HostTransition::Start => start(&mut upgrade, plan, record, host_record, now)?,
        HostTransition::StartNewcomer => {
            start(&mut upgrade, plan, record, host_record, now)?;
            upgrade.newcomer = Some(NewcomerStart { epoch: plan.epoch, in_flight: true });
        }
        HostTransition::CarryNewcomer => {
            upgrade.newcomer = Some(NewcomerStart { epoch: plan.epoch, in_flight: true });
        }
        HostTransition::Settle | HostTransition::Revoke => {
            clear_start(&mut upgrade);
            upgrade.newcomer = None;
        }
        HostTransition::Suspend => {
            upgrade.suspended = Some(Box::new(Suspension { attempt: upgrade.attempt, since: now }));
        }
        HostTransition::Resume => resume(&mut upgrade, now),
        HostTransition::Finish(end) => {
            upgrade.suspended = None;
            upgrade.outcome = Some(outcome(end, host_record, now));
            upgrade.version = None;
            if let Some(newcomer) = &mut upgrade.newcomer {
                newcomer.in_flight = false;
            }
        }
    }
    upgrade.round = record.round;
    Some(upgrade)
}

fn admit(upgrade: &mut Upgrade, plan: &Plan, record: &GroupRecord) {
    upgrade.epoch = plan.epoch;
    upgrade.newcomer = None;
    if let Some(window) = record.window {
        (upgrade.group_start_time, upgrade.group_end_time) = (window.start, window.end);
    }
}

fn start(
    upgrade: &mut Upgrade,
    plan: &Plan,
    record: &GroupRecord,
    host_record: &HostRecord,
    now: Timestamp,
) -> Option<()> {
    let window = record.window?;
    (upgrade.group_start_time, upgrade.group_end_time) = (window.start, window.end);
    upgrade.start_time = Some(now);
    upgrade.attempt = upgrade.attempt.max(reported_attempt(host_record)).saturating_add(1);
    upgrade.version = Some(Box::new(plan.version.clone()));
    upgrade.carried = false;
    upgrade.suspended = None;
    upgrade.clear_outcome();
    Some(())
}

/// Moves the start, and so every deadline that is counted from it. An older server then keeps to it as well.
fn resume(upgrade: &mut Upgrade, now: Timestamp) {
    if let (Some(suspension), Some(started)) = (upgrade.suspended.take(), upgrade.start_time) {
        let waited = now.duration_since(suspension.since.max(started)).max(SignedDuration::ZERO);
        upgrade.start_time = started.saturating_add(waited).ok();
    }
}

fn clear_start(upgrade: &mut Upgrade) {
    upgrade.start_time = None;
    upgrade.version = None;
    upgrade.carried = false;
    upgrade.suspended = None;
}

/// The last attempt that the host reports. A host that was removed and joined again may report a higher attempt than
/// its new record has, and its report about that attempt must not be attributed to a new one.
fn reported_attempt(host_record: &HostRecord) -> u64 {
    let Some(report) = host_record.report.as_ref() else { return 0 };
    let updater = report.updater.as_deref();
    let failed = updater.and_then(|updater| Some(updater.last_failure.as_ref()?.attempt));
    let obstacle = updater.and_then(|updater| Some(updater.obstacle.as_ref()?.attempt));
    let held = updater.and_then(|updater| Some(updater.held_target.as_ref()?.attempt));
    let called_off = updater.and_then(|updater| Some(updater.called_off.as_ref()?.attempt));
    let reported = [failed, obstacle, held, called_off].into_iter().flatten();
    reported.fold(report.hint_acknowledged, u64::max)
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
