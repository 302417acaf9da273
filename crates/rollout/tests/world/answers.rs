//! The properties that must hold of every server after every random step, however old its cache is: what it counts, what it
//! tells hosts, and what it names to new ones.

use jiff::Timestamp;
use refit_rollout::{Engine, NamedVersion, Ungrouped};
use refit_types::{HostId, HostRecord};
use uuid::Uuid;

use super::World;
use super::invariants::{ANSWERS, GOOD, HALT, Held, OUTCOME, PROGRESS, RESTART, hold};
use super::server::Server;
use super::store::{Records, Store};
use crate::model::after;

/// What is true of every server, however old its cache is.
pub fn of_the_servers(world: &World) -> Held {
    for (number, server) in world.servers.iter().enumerate() {
        let now = world.now + server.skew;
        if server.has_seen_until(&world.store, after(world.now, -5)) {
            no_answer_after_a_halt(world, server)?;
        }
        if server.is_behind_its_cache() {
            continue;
        }
        hold!(
            RESTART,
            server.engine == server.rebuilt(&world.store),
            "server {number} is not what its cache says"
        );
        progress_is_counted(&server.cache, &server.engine, &world.store)?;
        answers_agree(&server.cache, &server.engine, now)?;
        new_hosts_get_what_works(server)?;
    }
    Ok(())
}

fn no_answer_after_a_halt(world: &World, server: &Server) -> Held {
    let settings = world.store.records.settings();
    for ((_, name), since) in &world.halted {
        if after(*since, 5) >= world.now {
            continue;
        }
        for host in world.store.records.host_records() {
            let is_member =
                settings.present_of(host).is_some_and(|upgrade| upgrade.group_name.as_str() == name);
            let told = server.engine.view().answer(Some(host.host_id), world.now + server.skew).auto_update;
            hold!(HALT, !(is_member && told), "{} of {name} is told to go", host.host_id);
        }
    }
    Ok(())
}

fn progress_is_counted(records: &Records, engine: &Engine, store: &Store) -> Held {
    let settings = records.settings();
    for (position, group) in settings.groups().iter().enumerate() {
        let name = group.name.as_str();
        let record = records.group(name);
        hold!(PROGRESS, engine.view().group_record(position) == Some(&record), "{name}: {record:?}");
        let count = settings.recount(name, record.round, &records.host_records(), &store.gone);
        let progress = engine.view().progress(position);
        let expected =
            [settings.limit(name, record.members), count.held, count.away, count.ready, count.newcomers];
        let found = [progress.limit, progress.held, progress.away, progress.ready, progress.newcomers];
        hold!(PROGRESS, found == expected, "{name}: {progress:?}, recounted {expected:?}");
    }
    let alone: Vec<_> =
        records.host_records().into_iter().filter(|host| settings.group_of(host).is_none()).collect();
    let have_it = alone.iter().filter(|host| settings.has_version(host)).count();
    let is_behind = |host: &&&HostRecord| {
        !settings.has_version(host) && !settings.is_held(host) && crate::model::lost_since(host).is_none()
    };
    let behind = alone.iter().filter(is_behind).count();
    let expected = Ungrouped { hosts: alone.len() as u32, on_version: have_it as u32, behind: behind as u32 };
    hold!(
        PROGRESS,
        engine.view().ungrouped() == expected,
        "without a group: {:?}, {expected:?}",
        engine.view().ungrouped()
    );
    Ok(())
}

fn answers_agree(records: &Records, engine: &Engine, now: Timestamp) -> Held {
    let settings = records.settings();
    let record = |name: &str| records.group(name);
    let strangers = [None, Some(HostId::new(Uuid::from_u128(u128::MAX)))].map(|host| (host, None));
    let known = records.host_records().into_iter().map(|host| (Some(host.host_id), Some(host)));
    for (id, host_record) in known.chain(strangers) {
        let expected = settings.answer(host_record, record, now);
        let answer = engine.view().answer(id, now);
        let found = (answer.auto_update, answer.jitter_seconds, answer.attempt);
        hold!(ANSWERS, found == expected, "{id:?} at {now} is told {found:?}, not {expected:?}");
        let Some((id, host_record)) = id.zip(host_record) else { continue };
        let wanted = answer.auto_update
            && !settings.runs_version(host_record)
            && !settings.is_held(host_record)
            && settings.present_of(host_record).is_none_or(|upgrade| upgrade.outcome.is_none());
        let expected = wanted.then_some(answer.attempt);
        hold!(ANSWERS, engine.view().hint(id, now) == expected, "{id}: the hint is not {expected:?}");
    }
    Ok(())
}

/// What a server names to hosts that it does not know, and what it takes for a rollout that has ended well.
fn new_hosts_get_what_works(server: &Server) -> Held {
    let (settings, record) = (server.cache.settings(), |name: &str| server.cache.group(name));
    let last_good = settings.rollout.last_good.as_ref();
    let named = match NamedVersion::for_new_host(server.engine.view().stopped(), last_good) {
        NamedVersion::Target => Some(&settings.rollout.version),
        NamedVersion::LastGood(good) => Some(good),
        NamedVersion::Withheld(_) => None,
    };
    let expected = settings.named_to_strangers(record);
    hold!(GOOD, named == expected, "{named:?} is named to new hosts, not {expected:?}");
    let ended = settings.has_ended_well(&server.cache.host_records(), record);
    hold!(GOOD, server.has_ended_well() == ended, "it is {ended} that all ended well");
    Ok(())
}

/// Gives a host other outcomes and another version: nobody may see it from the answer.
pub fn outcomes_are_secret(server: &Server, host: HostId, now: Timestamp) -> Held {
    let Some(facts) = server.engine.view().facts(host) else { return Ok(()) };
    let answer = server.engine.view().answer(Some(host), now);
    let mut engine = server.engine.clone();
    for ended in [
        None,
        Some(refit_rollout::HostOutcome::Upgraded),
        Some(refit_rollout::HostOutcome::Failed { round: 0 }),
        Some(refit_rollout::HostOutcome::TimedOut { round: 0 }),
    ] {
        for [on_version, proving, undone] in
            [[false, false, false], [true, false, false], [false, true, false], [false, false, true]]
        {
            let facts = refit_rollout::HostFacts { ended, on_version, proving, undone, ..facts.clone() };
            engine.host(&facts, Default::default());
            let told = engine.view().answer(Some(host), now);
            hold!(OUTCOME, told == answer, "{host}: {told:?} once it is {ended:?}, {answer:?} before");
        }
    }
    Ok(())
}
