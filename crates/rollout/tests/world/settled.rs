//! The properties that must hold once no server has anything left to decide: what is due is done, operators are told why a
//! group does not go on, and servers sleep until the next thing is due.

use jiff::Timestamp;
use refit_types::{GroupRecord, GroupState, HostRecord};

use super::World;
use super::invariants::{Held, PAUSES, SETTLES, SUCCESS, hold};
use crate::model::{Doing, exceeds};

/// What must be true once no server that knows everything has anything left to decide.
pub fn of_what_is_settled(world: &World) -> Held {
    let (store, now) = (&world.store, world.now);
    let (records, settings) = (&store.records, store.records.settings());
    let hosts = records.host_records();
    for group in settings.groups() {
        let name = group.name.as_str();
        let record = records.group(name);
        let count = settings.recount(name, record.round, &hosts, &store.gone);
        let too_many = exceeds(record.failed, group.max_failed_before_halt, record.members)
            || exceeds(record.timed_out, group.max_timeout_before_halt, record.members);
        hold!(SETTLES, record.is_halted() || !too_many, "{name} goes on: {record:?}");
        let enabled = settings.config.agent_auto_update.enabled;
        let requires = settings.required(name);
        let may_start = enabled
            && !record.is_halted()
            && settings.rollout.paused.is_none()
            && record.paused.is_none()
            && requires.iter().all(|name| records.group(name).state == GroupState::Succeeded);
        let is_open = enabled && settings.is_open(name, &record, now) && !record.is_halted();
        let is_ahead = enabled && record.window.is_some_and(|window| window.start > now);
        let may_be_open = is_open || is_ahead;
        hold!(SETTLES, may_be_open || record.window.is_none(), "{name} stays open at {now}: {record:?}");
        let has_work = count.newcomers + count.ready > 0 || record.state != GroupState::Succeeded;
        let is_over = record.closed.is_some_and(|closed| now < closed);
        let must_be_open = is_open && may_start && has_work && !is_over && !is_ahead;
        hold!(SETTLES, !must_be_open || record.window.is_some(), "{name} does not open: {record:?}");
        hold!(SETTLES, !must_be_open || !record.admitting, "{name} is not ready: {record:?}");
        let has_room = count.in_flight < settings.limit(name, count.members);
        hold!(SETTLES, !(must_be_open && has_room && count.ready > 0), "{name} does not start: {count:?}");
        let here = || hosts.iter().filter(|host| settings.group_of(host) == Some(name));
        let could_start = here().any(|host| settings.could_be_guest(host, now));
        let is_in_window = record.window.is_some_and(|window| window.start <= now);
        hold!(
            SETTLES,
            !(may_start && is_in_window && has_room && could_start),
            "{name}: newcomers do not start: {record:?}"
        );
        let outside = here().filter(|host| settings.is_unsettled(host, now)).count();
        hold!(SETTLES, !(may_start && is_in_window && outside > 0), "{name}: {outside} have no slot");
        let is_stuck = settings.is_stuck(&record, &count) && record.state != GroupState::Succeeded;
        let waits = may_start && is_in_window && is_stuck && count.newcomers > 0;
        hold!(SETTLES, !waits, "{name}: newcomers do not become members: {record:?}");
        if is_stuck && may_start && !group.allow_empty && count.newcomers + count.away + count.guests == 0 {
            told_that_it_is_stuck(world, name, &count)?;
        }
        let is_done = record.sealed
            && !record.admitting
            && !record.is_halted()
            && count.in_flight - count.guests + count.ready + count.uncounted == 0
            && (count.upgraded > 0 || group.allow_empty)
            && settings.may_leave(name, &hosts, &record, now);
        hold!(SETTLES, !is_done || record.state == GroupState::Succeeded, "{name} is done: {record:?}");
        for host in hosts.iter().filter(|host| settings.group_of(host) == Some(name)) {
            is_settled(world, host, &record)?;
        }
    }
    Ok(())
}

/// Operators read why a group in which nobody can be upgraded does not go on.
fn told_that_it_is_stuck(world: &World, name: &str, count: &crate::model::Recount) -> Held {
    let (settings, now) = (world.settings(), world.now);
    let hosts = world.store.records.host_records();
    let mut here = hosts.iter().filter(|host| settings.group_of(host) == Some(name));
    let position = settings.groups().iter().position(|group| group.name.as_str() == name).unwrap();
    // One that might still be under way has a slot as soon as the group opens.
    if here.clone().any(|host| settings.is_unsettled(host, now)) {
        return Ok(());
    }
    let expected = match here.next() {
        None => "blocked: selects no hosts".to_owned(),
        Some(_) => {
            let away = if count.members == count.removed { count_absent(world, name) } else { 0 };
            let counts = [(count.held, "held"), (count.failed, "failed"), (count.timed_out, "timed out")];
            let told = counts.into_iter().chain([(away, "away")]).filter(|(count, _)| *count > 0);
            let told: String = told.map(|(count, what)| format!(", {count} {what}")).collect();
            format!("blocked: nobody could be upgraded{told}")
        }
    };
    for server in &world.servers {
        let found = server.engine.view().blocked_by(position, now).map(|why| why.in_words(now));
        hold!(SUCCESS, found.as_ref() == Some(&expected), "{name}: {found:?}, not {expected}");
    }
    Ok(())
}

fn count_absent(world: &World, name: &str) -> u32 {
    let settings = world.settings();
    let hosts = world.store.records.host_records();
    let here = hosts.iter().filter(|host| settings.group_of(host) == Some(name));
    here.filter(|host| settings.present_of(host).is_none()).count() as u32
}

/// A server that nobody wakes sleeps until the next thing is due, and not for longer.
pub fn of_sleep(world: &World) -> Held {
    let (settings, now) = (world.store.records.settings(), world.now);
    for server in &world.servers {
        let mut due: Vec<Timestamp> = Vec::new();
        for group in settings.groups() {
            due.push(crate::model::next_opening(&group.window, now));
            due.extend(world.store.records.group(group.name.as_str()).window.map(|window| window.end));
        }
        for host in world.store.records.host_records() {
            let round = |name: &str| world.store.records.group(name).round;
            let doing = settings.group_of(host).and_then(|name| settings.doing(host, round(name)));
            if settings.is_carried(host) {
                due.extend(settings.settles_by(host));
            } else if doing == Some(Doing::InFlight) || settings.has_slot(host) {
                due.extend(settings.times_out_at(host, server.reachable_since));
                due.extend(settings.is_lost_at(host, server.reachable_since));
            }
        }
        let wakes = server.engine.wake_at(now);
        let is_early = wakes.is_none_or(|at| at > now);
        let is_late = due.iter().any(|due| wakes.is_none_or(|at| at > *due));
        hold!(SETTLES, is_early && !is_late, "sleeps at {now} until {wakes:?}, due: {due:?}");
    }
    Ok(())
}

fn is_settled(world: &World, host: &HostRecord, record: &GroupRecord) -> Held {
    let (settings, now) = (world.store.records.settings(), world.now);
    if settings.is_carried(host) {
        let is_over = settings.has_settled(host) || settings.settles_by(host).is_some_and(|by| by <= now);
        hold!(SETTLES, !is_over, "{host:?} still has the slot of an earlier version at {now}");
        return Ok(());
    }
    let doing = settings.doing(host, record.round);
    let is_late = settings.has_version(host) && doing.is_some_and(|doing| doing != Doing::Upgraded);
    hold!(SETTLES, !is_late, "the success of {host:?} is not counted");
    if !settings.has_slot(host) {
        return Ok(());
    }
    let is_over = settings.is_held(host)
        || settings.is_called_off(host)
        || settings.is_undone(host)
        || settings.has_version(host)
        || world.servers.iter().any(|server| {
            let lost = settings.is_lost_at(host, server.reachable_since);
            let timed_out = settings.times_out_at(host, server.reachable_since);
            lost.into_iter().chain(timed_out).any(|at| at <= now)
        });
    hold!(SETTLES, !is_over, "{host:?} still has a slot at {now}");
    let is_stopped = settings.is_stopped(record);
    let is_in_vain = (record.window.is_none() || is_stopped) && settings.goes_in_vain(host);
    hold!(SETTLES, !is_in_vain, "the start of {host:?} is not taken back: {record:?}");
    let is_marked = host.upgrade.as_ref().is_some_and(|upgrade| upgrade.suspended.is_some());
    hold!(PAUSES, is_marked == is_stopped, "{host:?} is marked {is_marked}: {record:?}");
    Ok(())
}
