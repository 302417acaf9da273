//! The properties that must hold after every random step. A name starts with the number of its requirement.

use std::collections::BTreeSet;

use jiff::Timestamp;
use refit_rollout::{AttemptEnd, Decision, HostTransition, PlannedTransition};
use refit_types::{GroupRecord, GroupState, HaltCause, HostId, HostRecord, Outcome, Upgrade};

use super::server::Server;
use super::store::{Records, Store};
use super::{Broken, World};
use crate::model::{Doing, exceeds, is_live};

pub const IN_FLIGHT: &str = "1: hosts in flight are within the limit";
pub const CARRIED: &str =
    "1: hosts that were told of an earlier version and have not settled count for the limit";
pub const AWAY: &str =
    "1: hosts that were told and have neither reported nor passed their deadline count for the limit";
pub const SUCCESS: &str = "2: a group succeeds only if a member runs the version";
pub const START: &str = "2: a start is in its window, after what it requires, and not held up";
pub const HALT: &str = "2: no server answers true after a halt";
pub const COUNTS: &str = "3: stored counts equal a recount";
pub const PROGRESS: &str = "3: the engine's progress equals a recount";
pub const ENDS: &str = "4: a rollout in which nobody fails ends";
pub const SETTLES: &str = "4: what is due is done";
pub const RESTART: &str = "5: an engine that starts anew is the one that lived on";
pub const EPOCH: &str = "6: a new epoch resets everything, and nothing else begins one";
pub const RUN: &str = "6: a group that is run by hand forgets its failures, and stays succeeded if it was";
pub const TRANSITIONS: &str = "6: the transition of a host follows from what it did in this attempt";
pub const PAUSES: &str = "6: time that passes while nobody may go makes no time-out";
pub const ANSWERS: &str = "6: hosts are told what the records say";
pub const GOOD: &str = "6: new hosts are named what works";
pub const OUTCOME: &str = "6: a host's outcome does not change its answer";

macro_rules! hold {
    ($name:expr, $condition:expr, $($words:tt)*) => {
        if !$condition {
            return Err($crate::world::Broken { invariant: $name, what: format!($($words)*) });
        }
    };
}
pub(crate) use hold;

pub type Held = Result<(), Broken>;

fn counts(record: &GroupRecord) -> [u32; 6] {
    [record.members, record.removed, record.in_flight, record.upgraded, record.failed, record.timed_out]
}

/// What is true of the store, whatever happened.
pub fn of_the_store(world: &mut World) -> Held {
    let (store, now) = (&world.store, world.now);
    let (records, settings) = (&store.records, store.records.settings());
    let hosts = records.host_records();
    let mut in_flight_now = std::collections::BTreeMap::new();
    for group in settings.groups() {
        let name = group.name.as_str();
        let record = records.group(name);
        let count = settings.recount(name, record.round, &hosts, &store.gone);
        let recounted =
            [count.members, count.removed, count.in_flight, count.upgraded, count.failed, count.timed_out];
        hold!(COUNTS, counts(&record) == recounted, "{name}: {recounted:?} is not in {record:?}");

        let limit = settings.limit(name, count.members);
        let key = (settings.rollout.epoch, name.to_owned());
        let before = world.in_flight.get(&key).copied().unwrap_or(0);
        let allowed = if before > limit { before } else { limit };
        // Those that are under way to an earlier version are there whatever the limit says.
        let started = count.in_flight - count.carried;
        hold!(IN_FLIGHT, started <= allowed, "{name}: {started} in flight, limit {limit}, {before} before");
        in_flight_now.insert(key.clone(), started);
        let guests = record.newcomers_in_flight();
        hold!(COUNTS, guests == count.guests, "{name}: {} newcomers in flight, {record:?}", count.guests);

        if record.is_halted() {
            world.halted.entry(key).or_insert(now);
        } else {
            world.halted.remove(&key);
        }
    }
    world.halted.retain(|key, _| in_flight_now.contains_key(key));
    world.in_flight = in_flight_now;
    Ok(())
}

/// What must be true of a decision that is about to be stored.
pub fn of_a_decision(store: &Store, server: &Server, decision: &Decision, now: Timestamp) -> Held {
    let (records, settings) = (&store.records, store.records.settings());
    let name = settings.groups()[decision.group].name.as_str();
    let group = settings.group(name);
    let (before, record) = (records.group(name), &decision.record);
    hold!(RESTART, decision.before == before, "{name}: made from {:?}, not {before:?}", decision.before);
    let hosts: BTreeSet<HostId> = decision.transitions.iter().map(|planned| planned.host).collect();
    hold!(TRANSITIONS, hosts.len() == decision.transitions.len(), "{name}: a host has two transitions");
    hold!(TRANSITIONS, hosts.len() <= server.batch, "{name}: more transitions than the batch");
    let same_rest =
        record.epoch == before.epoch && record.round == before.round && record.paused == before.paused;
    hold!(
        EPOCH,
        same_rest && record.members >= before.members && record.removed == before.removed,
        "{record:?}"
    );

    if let GroupState::Halted(halt) = record.state
        && !before.is_halted()
    {
        let (count, limit) = match halt.cause {
            HaltCause::Failed => (record.failed, group.max_failed_before_halt),
            HaltCause::TimedOut => (record.timed_out, group.max_timeout_before_halt),
        };
        let is_true = (halt.count, halt.members, halt.limit) == (count, record.members, limit);
        hold!(HALT, is_true && exceeds(count, limit, record.members), "{name}: halted for {halt}");
        hold!(HALT, record.window.is_none() && record.run.is_none(), "{name}: halted with a window");
    }
    hold!(HALT, record.is_halted() || !before.is_halted(), "{name}: only an operator ends a halt");
    let lasts = matches!(record.state, GroupState::Succeeded | GroupState::Halted(_));
    hold!(RUN, lasts || before.state != GroupState::Succeeded, "{name} has succeeded, and is {record:?}");
    if let Some(window) = record.window {
        let by_hand = record.run.filter(|run| run.start <= now && now < run.end);
        let due = by_hand.or_else(|| crate::model::open_window(&group.window, now));
        let is_ahead = before.window == Some(window) && window.start > now;
        hold!(START, is_ahead || due == Some(window), "{name}: open for {window:?}, due is {due:?}");
        let is_opened = before.window.is_none_or(|before| before.start != window.start);
        let is_early = record.closed.is_some_and(|closed| now < closed);
        hold!(START, !(is_opened && is_early), "{name}: opened again at {now}: {record:?}");
    }

    for PlannedTransition { host, transition, .. } in &decision.transitions {
        let host_record = records.host_record(*host).unwrap();
        let is_fair = is_fair(store, server, decision, host_record, *transition, now);
        hold!(TRANSITIONS, is_fair, "{name}: {transition:?} for {host_record:?} in {record:?} at {now}");
    }
    let those = |wanted: HostTransition| -> Vec<HostId> {
        let found = decision.transitions.iter().filter(|planned| planned.transition == wanted);
        found.map(|planned| planned.host).collect()
    };
    let (started, guests) = (those(HostTransition::Start), those(HostTransition::StartNewcomer));
    if !started.is_empty() || !guests.is_empty() {
        may_start(records, name, &before, record, now)?;
        nobody_is_left_out_of_the_limit(store, server, decision, now)?;
    }
    if record.state == GroupState::Succeeded && before.state != GroupState::Succeeded {
        let is_true = record.upgraded > 0 || group.allow_empty;
        hold!(SUCCESS, is_true, "{name} succeeded with {record:?}");
    }
    nobody_is_forgotten(store, decision, now)?;
    if !server.is_up_to_date(store) {
        return Ok(());
    }
    let hosts = records.host_records();
    let is_opened = before.window.map(|window| window.start) != record.window.map(|window| window.start);
    if record.window.is_some() && !record.admitting && (is_opened || before.admitting) {
        let forgotten = hosts.iter().find(|host| {
            settings.group_of(host) == Some(name)
                && settings.upgrade_of(host).is_none()
                && is_live(host, now)
                && decision.transitions.iter().all(|planned| planned.host != host.host_id)
        });
        hold!(TRANSITIONS, forgotten.is_none(), "{name} is sealed without {forgotten:?} at {now}");
    }
    let ready = hosts.iter().filter(|host| {
        settings.group_of(host) == Some(name) && settings.doing(host, record.round) == Some(Doing::Ready)
    });
    let next: Vec<HostId> = ready.map(|host| host.host_id).take(started.len()).collect();
    hold!(START, next == started, "{name}: {started:?} started, {next:?} were next");
    let count = settings.recount(name, record.round, &hosts, &store.gone);
    let members_first = guests.is_empty() || count.ready as usize == started.len();
    hold!(START, members_first, "{name}: newcomers started before members: {count:?}");
    if record.state == GroupState::Succeeded && before.state != GroupState::Succeeded {
        let count = settings.recount(name, record.round, &hosts, &store.gone);
        let is_done = record.sealed && count.in_flight - count.guests + count.ready + count.uncounted == 0;
        hold!(SETTLES, is_done, "{name} succeeded too early: {count:?}");
        hold!(
            SETTLES,
            settings.may_leave(name, &hosts, record, now),
            "{name} left too many behind: {count:?}"
        );
    }
    Ok(())
}

/// A group is sealed with every host that was there when its record, or that of the epoch, was written. Which of
/// those that came later are taken in depends on how much of the watch the server has seen.
fn nobody_is_forgotten(store: &Store, decision: &Decision, now: Timestamp) -> Held {
    let (records, settings) = (&store.records, store.records.settings());
    let name = settings.groups()[decision.group].name.as_str();
    let is_sealed = decision.before.admitting && !decision.record.admitting;
    // A window that closes, or a halt, ends it early.
    if !is_sealed || decision.record.window.is_none() {
        return Ok(());
    }
    let written = decision.revision.unwrap_or_default().max(records.settings.revision);
    let were_there = records.hosts.values().filter(|stored| stored.revision <= written);
    let forgotten = were_there.filter_map(|stored| stored.value.as_deref()).find(|host| {
        settings.group_of(host) == Some(name)
            && settings.upgrade_of(host).is_none()
            && is_live(host, now)
            && decision.transitions.iter().all(|planned| planned.host != host.host_id)
    });
    hold!(TRANSITIONS, forgotten.is_none(), "{name} is sealed without {forgotten:?} at {now}");
    Ok(())
}

/// Whoever starts a host has counted all that are under way, to whatever version. A server that has not heard of
/// everything knows at least those that were under way when the epoch began.
fn nobody_is_left_out_of_the_limit(
    store: &Store,
    server: &Server,
    decision: &Decision,
    now: Timestamp,
) -> Held {
    let (records, settings) = (&store.records, store.records.settings());
    let name = settings.groups()[decision.group].name.as_str();
    let is_known = |revision| server.is_up_to_date(store) || revision <= records.settings.revision;
    let known = records.hosts.values().filter(|stored| is_known(stored.revision));
    let outside = known.filter_map(|stored| stored.value.as_deref()).filter(|host| {
        settings.group_of(host) == Some(name)
            && settings.is_unsettled(host, now)
            && decision.transitions.iter().all(|planned| planned.host != host.host_id)
    });
    let (outside, inside) = (outside.count() as u32, decision.record.in_flight);
    let limit = settings.limit(name, decision.record.members);
    hold!(
        CARRIED,
        inside + outside <= limit,
        "{name}: {inside} in flight and {outside} under way to an earlier version, limit {limit}, at {now}"
    );
    Ok(())
}

fn may_start(
    records: &Records,
    name: &str,
    before: &GroupRecord,
    record: &GroupRecord,
    now: Timestamp,
) -> Held {
    let settings = records.settings();
    let in_window = record.window.is_some_and(|window| window.start <= now && now < window.end);
    let is_open = in_window && settings.is_open(name, before, now);
    hold!(START, is_open, "{name}: started at {now}, outside its window");
    hold!(START, !before.is_halted() && !record.is_halted(), "{name}: started after a halt");
    hold!(START, settings.config.agent_auto_update.enabled, "{name}: started while updates are off");
    hold!(START, !settings.is_paused(before), "{name}: started while paused");
    hold!(START, record.sealed && !record.admitting, "{name}: started before all members were added");
    for required in settings.required(name) {
        let state = records.group(&required).state;
        hold!(START, state == GroupState::Succeeded, "{name}: started while {required} is {state:?}");
    }
    Ok(())
}

/// Whether the transition follows from what the host did or failed to do.
fn is_fair(
    store: &Store,
    server: &Server,
    decision: &Decision,
    host_record: &HostRecord,
    transition: HostTransition,
    now: Timestamp,
) -> bool {
    let (settings, record) = (store.records.settings(), &decision.record);
    let name = settings.groups()[decision.group].name.as_str();
    let present = settings.present_of(host_record);
    let is_carried = settings.is_carried(host_record);
    let is_unsettled = settings.is_unsettled(host_record, now);
    let has_slot = settings.has_slot(host_record);
    let in_flight = has_slot && !is_carried;
    let is_member = settings.upgrade_of(host_record).is_some();
    let is_here = settings.group_of(host_record) == Some(name);
    let has_it = settings.has_version(host_record);
    let is_lost = settings.is_lost_at(host_record, server.reachable_since).is_some_and(|at| at <= now);
    let is_late = settings.times_out_at(host_record, server.reachable_since).is_some_and(|at| at <= now);
    let is_stopped = settings.is_stopped(&decision.before);
    let is_marked = present.is_some_and(|upgrade| {
        upgrade.suspended.as_ref().is_some_and(|suspended| suspended.attempt == upgrade.attempt)
    });
    is_here
        && match transition {
            HostTransition::Admit | HostTransition::AdmitUpgraded => {
                !is_member
                    && !has_slot
                    && !is_unsettled
                    && is_live(host_record, now)
                    && has_it == (transition == HostTransition::AdmitUpgraded)
                    && record.window.is_some()
            }
            HostTransition::AdmitInFlight => {
                !is_member && (has_slot || is_unsettled) && record.window.is_some()
            }
            HostTransition::StartNewcomer => settings.could_be_guest(host_record, now),
            HostTransition::CarryNewcomer => is_unsettled,
            HostTransition::Settle => {
                let is_late = settings.settles_by(host_record).is_some_and(|by| by <= now);
                is_carried && (is_late || settings.has_settled(host_record))
            }
            HostTransition::Start => settings.doing(host_record, record.round) == Some(Doing::Ready),
            HostTransition::Revoke => {
                let in_vain = (record.window.is_none() || is_stopped) && settings.goes_in_vain(host_record);
                let is_refused = settings.is_held(host_record) || settings.is_called_off(host_record);
                in_flight
                    && !has_it
                    && !settings.is_undone(host_record)
                    && (is_refused || in_vain || is_stopped && is_late && !is_lost)
            }
            HostTransition::Suspend => {
                in_flight && !has_it && is_stopped && !is_marked && settings.has_acknowledged(host_record)
            }
            HostTransition::Resume => in_flight && !has_it && !is_stopped && is_marked,
            HostTransition::Finish(AttemptEnd::Upgraded) => {
                let already =
                    present.is_some_and(|upgrade| matches!(upgrade.outcome, Some(Outcome::Upgraded { .. })));
                present.is_some() && has_it && !already && !is_carried && (is_member || in_flight)
            }
            HostTransition::Finish(AttemptEnd::Undone) => {
                in_flight && !has_it && settings.is_undone(host_record)
            }
            HostTransition::Finish(AttemptEnd::Lost) => in_flight && !has_it && is_lost,
            HostTransition::Finish(AttemptEnd::TimedOut) => {
                !is_stopped && !is_marked && in_flight && !has_it && !is_lost && is_late
            }
        }
}

/// When a host was told, without the time for which nobody might go.
fn moved(before: &Upgrade, now: Timestamp) -> Option<Option<Timestamp>> {
    let (started, since) = (before.start_time?, before.suspended.as_ref()?.since);
    let from = if since < started { started } else { since };
    let waited = if now > from { now.duration_since(from) } else { jiff::SignedDuration::ZERO };
    Some(Some(started + waited))
}

/// What must be true of a host's record after its transition.
pub fn of_a_transition(
    host_record: &HostRecord,
    after: Option<&Upgrade>,
    transition: HostTransition,
    now: Timestamp,
) -> Held {
    let before = host_record.upgrade.as_deref();
    let attempts = before.map_or(0, |before| before.attempt);
    let is_kept = |after: &Upgrade| {
        after.attempt == attempts && before.is_some_and(|before| before.start_time == after.start_time)
    };
    let is_guest = |after: &Upgrade| after.newcomer.is_some_and(|newcomer| newcomer.in_flight);
    let is_started = |after: &Upgrade| {
        let is_new = after.attempt == crate::model::last_attempt(host_record) + 1;
        after.start_time == Some(now) && is_new && !after.carried && after.version.is_some()
    };
    let is_well = after.is_some_and(|after| match (transition, &after.outcome) {
        (HostTransition::Admit, None) => {
            after.start_time.is_none() && after.attempt == attempts && after.newcomer.is_none()
        }
        (HostTransition::AdmitUpgraded, Some(Outcome::Upgraded { at })) => {
            *at == now && after.start_time.is_none() && after.attempt == attempts
        }
        (HostTransition::AdmitInFlight, None) => is_kept(after) && after.newcomer.is_none(),
        (HostTransition::CarryNewcomer, None) => is_kept(after) && is_guest(after) && after.carried,
        (HostTransition::Start, None) => is_started(after) && after.newcomer.is_none(),
        (HostTransition::StartNewcomer, None) => is_started(after) && is_guest(after),
        (HostTransition::Revoke | HostTransition::Settle, None) => {
            after.start_time.is_none() && after.attempt == attempts && !after.carried
        }
        (HostTransition::Suspend, None) => {
            is_kept(after) && after.suspended.as_ref().is_some_and(|suspended| suspended.since == now)
        }
        (HostTransition::Resume, None) => {
            after.attempt == attempts
                && after.suspended.is_none()
                && before.is_some_and(|before| Some(after.start_time) == moved(before, now))
        }
        (HostTransition::Finish(AttemptEnd::Upgraded), Some(Outcome::Upgraded { at })) => {
            *at == now && is_kept(after)
        }
        (HostTransition::Finish(AttemptEnd::Undone | AttemptEnd::Lost), Some(Outcome::Failed { at, .. })) => {
            *at == now && is_kept(after)
        }
        (HostTransition::Finish(AttemptEnd::TimedOut), Some(Outcome::TimedOut { at })) => {
            *at == now && is_kept(after)
        }
        _ => false,
    });
    hold!(TRANSITIONS, is_well, "{transition:?} at {now} made {after:?} of {before:?}");
    Ok(())
}
