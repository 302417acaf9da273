//! How actions of operators change a group's record: a manual run, and the removal of a host. No I/O.

use jiff::{SignedDuration, Timestamp};
use refit_types::{Group, GroupRecord, GroupState, MarkedDone, Span};

use crate::{HostFacts, HostOutcome};

/// The group's record after a manual run: a window opens now, failures are reset, and hosts that failed or timed out
/// may start again. Hosts in flight keep their slots. A group that has succeeded stays so, and groups that require it
/// continue.
pub fn run_group(group: &Group, record: &GroupRecord, now: Timestamp) -> GroupRecord {
    let hours = SignedDuration::from_hours(group.window.window_hours.into());
    let end = now.saturating_add(hours).unwrap_or(Timestamp::MAX);
    let (state, since) = match record.state {
        GroupState::Succeeded => (GroupState::Succeeded, record.since),
        _ => (GroupState::Scheduled, now),
    };
    GroupRecord {
        state,
        since,
        window: None,
        closed: None,
        admitting: false,
        run: Some(Span { start: now, end }),
        round: record.round + 1,
        failed: 0,
        timed_out: 0,
        ..record.clone()
    }
}

/// The group's record after an operator declared it done although no member could be upgraded: groups that require it
/// continue.
pub fn mark_done(record: &GroupRecord, by: &str, now: Timestamp) -> GroupRecord {
    let marked = MarkedDone { epoch: record.epoch, at: now, by: by.into() };
    GroupRecord { state: GroupState::Succeeded, since: now, marked_done: Some(marked), ..record.clone() }
}

/// The group's record after a member has left the fleet. The member still counts for the limit, which must not shrink
/// below the number in flight.
pub fn removed(record: &GroupRecord, host: &HostFacts) -> GroupRecord {
    let mut record = record.clone();
    if !host.member {
        if host.newcomer && host.started.is_some() && host.ended.is_none() {
            let guests = record.newcomers_in_flight();
            record.set_newcomers_in_flight(guests.saturating_sub(1));
            record.in_flight = record.in_flight.saturating_sub(1);
        }
        return record;
    }
    record.removed += 1;
    let bucket = match host.ended {
        Some(HostOutcome::Upgraded) => &mut record.upgraded,
        Some(HostOutcome::Failed { round }) if round == record.round => &mut record.failed,
        Some(HostOutcome::TimedOut { round }) if round == record.round => &mut record.timed_out,
        None if host.started.is_some() => &mut record.in_flight,
        _ => return record,
    };
    *bucket = bucket.saturating_sub(1);
    record
}
