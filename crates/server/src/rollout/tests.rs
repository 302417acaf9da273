//! Rollouts on a store in memory: operators, late commits, arrivals and hosts that leave.

mod newer_release;

use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Key, SharedBackend};
use refit_testbed::eventually;
use refit_types::{Group, HostLimit, Schedule, UpdateFailure, UpdaterStatus};

use super::expiry::is_long_lost;
use crate::fleet::tests::{Bare, WITHIN, beat, group, held_backend, host, store};
use crate::fleet::{Fleet, StoreReading, plan_key};

const GROUPS: &str = "/rollouts/v1/default/groups";

#[tokio::test]
async fn a_decision_that_an_operator_was_quicker_than_undoes_nothing() {
    let held = held_backend(store());
    let backend: SharedBackend = held.clone();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 4).await;
    held.hold(GROUPS);
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    bare.rollouts.operator_changed().await.unwrap();
    held.until_held().await;
    // The decision is on its way when the operator's change is stored, past it.
    let operator = Bare::new(&held.inner(), "s2");
    operator.rollouts.set_paused(Some("all"), true, "alice").await.unwrap();
    held.release();
    // Those that were told and had not begun are called off.
    let record = bare.until("all", |record| record.upgraded == 1 && record.in_flight == 0).await;
    assert!(record.paused.is_some(), "the pause is lost: {record:?}");
    assert!(!bare.metrics.encode().contains("refit_rollout_conflicts_total 0"), "it was refused");
}

#[tokio::test]
async fn what_another_server_has_stored_is_not_stored_again() {
    let inner = store();
    let (first, second) = (held_backend(inner.clone()), held_backend(inner.clone()));
    let backend: SharedBackend = first.clone();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![group("all", 50)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    let backend: SharedBackend = second.clone();
    let other = Bare::new(&backend, "s2");
    other.knows(4).await;
    // Both hear that a host has arrived and decide the same; what the second one has decided comes late.
    first.hold(GROUPS);
    second.hold(GROUPS);
    let key = Fleet::key(host(1)).unwrap();
    let stored = inner.get(&key).await.unwrap().unwrap();
    let mut host_record: refit_types::HostRecord = serde_json::from_slice(&stored.value).unwrap();
    host_record.report.as_mut().unwrap().version = "2.0.0".parse().unwrap();
    inner.put(&key, serde_json::to_vec(&host_record).unwrap().into()).await.unwrap();
    let sent = async || {
        bare.rollouts.operator_changed().await.unwrap();
        other.rollouts.operator_changed().await.unwrap();
        first.is_held() && second.is_held()
    };
    eventually("both servers have decided", WITHIN, sent).await;
    first.release();
    bare.until("all", |record| record.upgraded == 1 && record.in_flight == 2).await;
    second.release();
    let refused = async || !other.metrics.encode().contains("refit_rollout_conflicts_total 0");
    eventually("the late one is refused", WITHIN, refused).await;
    let record = other.settled("all").await;
    assert_eq!((record.upgraded, record.in_flight), (1, 2), "{record:?}");
}

#[tokio::test]
async fn a_host_that_changes_while_a_decision_about_it_is_stored_is_not_lost() {
    let held = held_backend(store());
    let backend: SharedBackend = held.clone();
    let bare = Bare::with_hosts(&backend, 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    held.hold(GROUPS);
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    bare.rollouts.operator_changed().await.unwrap();
    held.until_held().await;
    // It has gone back before its arrival is stored: that is heard, and stored behind it.
    let (fleet, connection) = (bare.fleet.clone(), bare.connection(1));
    let heard =
        tokio::spawn(async move { fleet.heartbeat(host(1), &connection, beat("1.0.0", 2, 10)).await });
    bare.hears(2, &beat("1.9.0", 2, 0)).await;
    held.release();
    heard.await.unwrap().unwrap();
    assert_eq!(bare.known(1).report.as_ref().unwrap().version.to_string(), "1.0.0");
    let record = bare.settled("all").await;
    assert_eq!((record.upgraded, record.in_flight), (1, 1), "it had arrived when that was stored");
}

#[tokio::test]
async fn what_was_read_earlier_does_not_replace_what_was_read_later() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    let early = StoreReading::read(&bare.backend, Default::default()).await.unwrap();
    let asked = std::time::Instant::now();
    bare.until("all", |record| record.in_flight == 2).await;
    bare.fleet.tell_reading(early.clone(), asked, true).await.unwrap();
    let view = bare.fleet.view();
    let in_flight = view.rollout.as_ref().unwrap().group_record(0).unwrap().in_flight;
    assert!(view.snapshot.plan.is_some() && in_flight == 2, "it went back: {:?}", view.snapshot);
    // And no epoch is begun from it under the conditions of a later one.
    bare.say(vec![group("all", 100)], "3.0.0").await;
    bare.rollouts.operator_changed().await.unwrap();
    let stale = early.snapshot.due_plan(Timestamp::now()).unwrap();
    let refused = bare.rollouts.begin(stale, &early).await.unwrap_err();
    assert!(matches!(refused, refit_backend::Error::Conflict { .. }), "{refused}");
    let plan = bare.backend.get(&plan_key().unwrap()).await.unwrap().unwrap();
    let plan: refit_types::RolloutRecord = serde_json::from_slice(&plan.value).unwrap();
    assert_eq!((plan.epoch, plan.version.to_string().as_str()), (2, "3.0.0"));
    assert_eq!(plan.schedule, Schedule::Regular);
}

#[tokio::test]
async fn a_server_that_does_not_know_the_fleet_yet_counts_whom_it_removes() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 3).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 3).await;
    let fresh = Bare::new(&backend, "s2");
    assert!(fresh.rollouts.remove(host(2), "alice").await.unwrap());
    assert!(!fresh.rollouts.remove(host(2), "alice").await.unwrap(), "it is gone");
    let record = bare.record("all").await.unwrap();
    assert_eq!((record.members, record.removed, record.in_flight), (3, 1, 2));
}

/// Writes of host records that were due for their heartbeats and were stored with a decision.
fn arrivals(bare: &Bare) -> String {
    let metrics = bare.metrics.encode();
    let line = metrics.lines().find(|line| line.contains("rollout_writes") && line.contains("arrival"));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0").to_owned()
}

#[tokio::test]
async fn an_arrival_is_stored_with_the_decision_about_it() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    bare.hears(1, &beat("1.9.0", 1, 0)).await;
    assert_eq!(
        bare.known(1).report.as_ref().unwrap().version.to_string(),
        "1.9.0",
        "that is not the version"
    );
    bare.hears(1, &beat("2.0.0", 11, 10)).await;
    bare.hears(1, &beat("2.0.0", 11, 10)).await;
    assert_eq!(bare.known(1).report.as_ref().unwrap().version.to_string(), "1.9.0", "it waits");
    let record = bare.until("all", |record| record.upgraded == 1).await;
    assert_eq!((record.in_flight, arrivals(&bare).as_str()), (1, "1"));
    let known = async || bare.known(1).report.as_ref().unwrap().version.to_string() == "2.0.0";
    eventually("it is known", WITHIN, known).await;
}

#[tokio::test]
async fn what_a_host_says_after_its_arrival_is_not_undone_by_it() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    bare.hears(1, &beat("2.0.0", 11, 10)).await;
    bare.hears(1, &beat("1.0.0", 1, 0)).await;
    bare.hears(1, &beat("1.0.0", 12, 20)).await;
    let version = |n| bare.known(n).report.as_ref().unwrap().version.to_string();
    assert_eq!(version(1), "1.0.0", "it went back, and that is stored");
    let record = bare.settled("all").await;
    assert_eq!((record.upgraded, version(1).as_str()), (0, "1.0.0"));

    // A process whose place was taken before changes nothing of it, however often it speaks up.
    bare.hears(1, &beat("2.0.0", 12, 20)).await;
    bare.hears(1, &beat("1.0.0", 1, 0)).await;
    let record = bare.until("all", |record| record.upgraded == 1).await;
    assert_eq!(record.in_flight, 1);

    // The same, and what it says then is what was stored before its arrival.
    bare.hears(2, &beat("2.0.0", 2, 0)).await;
    bare.hears(2, &beat("1.0.0", 2, 0)).await;
    let record = bare.settled("all").await;
    assert_eq!((record.upgraded, version(2).as_str()), (1, "1.0.0"));
}

#[tokio::test]
async fn an_arrival_is_dropped_once_the_host_has_spoken_elsewhere() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 1).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 1).await;
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    // It moves to another server, and says there that it has gone further.
    let other = Bare::new(&backend, "s2");
    other.hears(1, &beat("2.0.1", 1, 0)).await;
    bare.loses(1, 1).await;
    bare.settled("all").await;
    let known = bare.known(1);
    assert_eq!(known.server.as_deref(), Some("s2"));
    assert_eq!(known.report.as_ref().unwrap().version.to_string(), "2.0.1");
}

#[tokio::test]
async fn a_host_that_is_gone_is_not_taken_for_connected() {
    let bare = Bare::with_hosts(&store(), 2).await;
    // What is stored says that it is connected here, and no stream is.
    let key = Fleet::key(host(3)).unwrap();
    let mut host_record = refit_types::HostRecord::clone(&bare.known(2));
    host_record.host_id = host(3);
    bare.backend.put(&key, serde_json::to_vec(&host_record).unwrap().into()).await.unwrap();
    bare.knows(3).await;
    assert_eq!(bare.known(3).server.as_deref(), Some("s1"));
    bare.rollouts.clear_stale_connections().await;
    eventually("nobody hears it", WITHIN, async || bare.known(3).server.is_none()).await;
    assert_eq!(bare.known(2).server.as_deref(), Some("s1"));
}

#[tokio::test]
async fn hosts_with_much_to_say_are_stored_in_smaller_batches() {
    let bare = Bare::with_hosts(&store(), 60).await;
    for n in 1..=60 {
        let mut wordy = beat("1.0.0", n, 0);
        let failure = UpdateFailure {
            attempt: 99,
            version: "1.0.0".parse().unwrap(),
            step: "download".into(),
            reason: "x".repeat(60 * 1024),
            at: Timestamp::now(),
            agent: None,
        };
        let status = UpdaterStatus {
            agent_updates_enabled: true,
            last_failure: Some(failure),
            ..UpdaterStatus::default()
        };
        wordy.report.updater = Some(Box::new(status));
        bare.hears(n, &wordy).await;
    }
    bare.say(vec![group("all", 100)], "2.0.0").await;
    let record = bare.until("all", |record| record.in_flight == 60).await;
    assert_eq!(record.members, 60);
}

#[tokio::test]
async fn a_clock_that_is_a_month_ahead_forgets_nobody_who_is_heard() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.rollouts.operator_changed().await.unwrap();
    bare.loses(2, 2).await;
    let month = Duration::from_secs(31 * 86_400);
    let is_long_lost = |n, now| is_long_lost(&bare.fleet.view(), &bare.known(n), now);
    let (now, ahead) = (Timestamp::now(), Timestamp::now() + month);
    assert_eq!([is_long_lost(1, now), is_long_lost(2, now)], [false, false]);
    assert_eq!([is_long_lost(1, ahead), is_long_lost(2, ahead)], [false, true]);
    bare.rollouts.forget_lost(now).await;
    assert_eq!(bare.fleet.view().hosts.len(), 2);
    bare.rollouts.forget_lost(ahead).await;
    assert!(bare.fleet.known(host(1)).is_some() && bare.fleet.known(host(2)).is_none());
}

#[tokio::test]
async fn an_agent_is_woken_with_its_hint() {
    let bare = Bare::with_hosts(&store(), 1).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    let connection = bare.connection(1);
    bare.until("all", |record| record.in_flight == 1).await;
    let hint = |session| bare.fleet.view().hint(host(1), uuid::Uuid::from_u128(session), bare.fleet.clock());
    let told = async {
        while hint(1).is_none() {
            connection.news.notified().await;
        }
    };
    tokio::time::timeout(WITHIN, told).await.expect("news");
    assert_eq!((hint(1), hint(2)), (Some(1), None), "the other is another process");
}

#[tokio::test]
async fn nobody_times_out_before_hosts_could_come_back() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![Group { max_timeout_before_halt: HostLimit::ZERO, ..group("all", 100) }], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 4).await;
    drop(bare);
    // An hour without a server, in which the time of all is up.
    for n in 1..=4 {
        let key = Fleet::key(host(n)).unwrap();
        let item = backend.get(&key).await.unwrap().unwrap();
        let mut host_record: refit_types::HostRecord = serde_json::from_slice(&item.value).unwrap();
        let upgrade = host_record.upgrade.as_mut().unwrap();
        upgrade.start_time = Some(upgrade.start_time.unwrap() - Duration::from_secs(3600));
        backend.put(&key, serde_json::to_vec(&host_record).unwrap().into()).await.unwrap();
    }
    let again = Bare::new(&backend, "s1");
    again.knows(4).await;
    let record = again.settled("all").await;
    assert_eq!((record.timed_out, record.is_halted()), (0, false), "{record:?}");
    for n in 1..=4 {
        again.hears(n, &beat("2.0.0", n, 0)).await;
    }
    let record = again.until("all", |record| record.upgraded == 4).await;
    assert_eq!((record.timed_out, record.in_flight), (0, 0), "{record:?}");
}

#[tokio::test]
async fn a_server_that_leaves_takes_the_liveness_of_its_hosts_along() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 2).await;
    let other = Bare::new(&backend, "s2");
    let listed = Key::new("/servers/v1/default/s2").unwrap();
    backend.put(&listed, "{}".into()).await.unwrap();
    other.joins(3).await;
    other.hears(3, &beat("1.0.0", 3, 0)).await;
    bare.knows(3).await;
    bare.rollouts.operator_changed().await.unwrap();
    let connected = |n| bare.fleet.view().lost_since(&bare.known(n)).is_none();
    let all_are = async || connected(1) && connected(2) && bare.known(3).server.is_some() && connected(3);
    eventually("all are connected", WITHIN, all_are).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 3).await;
    let lost = || {
        let view = bare.fleet.view();
        view.rollout.as_ref().unwrap().facts(host(3)).unwrap().lost_since
    };
    assert_eq!(lost(), None);
    backend.delete(&listed).await.unwrap();
    eventually("its host is lost", WITHIN, async || !connected(3) && lost().is_some()).await;
    assert!(connected(1));
    backend.put(&listed, "{}".into()).await.unwrap();
    eventually("and is back", WITHIN, async || connected(3) && lost().is_none()).await;
}
