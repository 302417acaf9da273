mod newer_release;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_backend::{Error, Key, MemoryBackend, SharedBackend};
use refit_types::{
    AgentRole, AutoupdateVersion, ClusterMaintenanceConfig, Edition, Group, GroupRecord, HostId, Percent,
    Report, RotationMark, Schedule, Session, UpdateFailure, UpdaterStatus, UpgraderKind, WeeklyWindow,
};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::Rollouts;
use super::cycle::Overlay;
use super::stored::{Stored, group_key, plan_key};
use crate::events::Events;
use crate::fleet::{Fleet, Heartbeat};
use crate::metrics::Metrics;
use crate::release::{autoupdate_versions, maintenance_configs};

/// A server without a port.
struct Bare {
    backend: SharedBackend,
    rollouts: Arc<Rollouts>,
    stop: watch::Sender<bool>,
}

fn host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

fn beat(version: &str, session: u128, started: i64) -> Heartbeat {
    let started_at = Timestamp::from_second(started).unwrap();
    Heartbeat {
        identity_expires: None,
        hostname: "web".into(),
        report: Report {
            version: version.parse().unwrap(),
            edition: Edition::Oss.into(),
            node_labels: Default::default(),
            instance_labels: Default::default(),
            upgrader: UpgraderKind::Binary.into(),
            updater: None,
            session: Session { id: Uuid::from_u128(session), started_at },
            rotation: RotationMark::default(),
            hint_acknowledged: 0,
        },
    }
}

fn group(name: &str, share: u8) -> Group {
    let hour = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
    let start_hour = u8::try_from((hour + 12) % 24).unwrap();
    Group {
        window: WeeklyWindow { start_hour, window_hours: 24, ..WeeklyWindow::default() },
        max_in_flight: Percent::new(share).unwrap(),
        timeout_seconds: 900,
        ..Group::named(name.parse().unwrap())
    }
}

impl Bare {
    fn new(backend: &SharedBackend, name: &str) -> Self {
        let now: fn() -> Timestamp = Timestamp::now;
        let fleet = Fleet::new(backend.clone(), name, now);
        let events = Arc::new(Events::new(backend.clone(), now));
        let metrics = Metrics::new("1.0.0", "memory");
        let version = "1.0.0".parse().unwrap();
        let rollouts = Rollouts::new(backend.clone(), fleet, events, metrics, name, version, now);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(rollouts.fleet.clone().follow(stopped));
        Self { backend: backend.clone(), rollouts, stop }
    }

    /// One that lives and knows its fleet, in which `hosts` have the old version.
    async fn with_hosts(backend: &SharedBackend, hosts: u128) -> Self {
        let bare = Self::new(backend, "s1");
        backend.put(&refit_backend::Key::new("/servers/v1/default/s1").unwrap(), "{}".into()).await.unwrap();
        for n in 1..=hosts {
            bare.rollouts.fleet.join(host(n), "web", &[AgentRole::Node], false).await.unwrap();
            bare.hears(n, &beat("1.0.0", n, 0)).await;
        }
        bare
    }

    /// Another one, once it knows that many hosts.
    async fn knowing(backend: &SharedBackend, name: &str, hosts: usize) -> Self {
        let bare = Self::new(backend, name);
        let loaded = async {
            while bare.rollouts.fleet.len() < hosts {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), loaded).await.expect("the fleet");
        bare
    }

    async fn hears(&self, n: u128, heartbeat: &Heartbeat) {
        let news: Arc<Notify> = Arc::default();
        self.rollouts.fleet.heard(host(n), 0, &news, heartbeat).await.unwrap();
    }

    async fn say(&self, groups: Vec<Group>, version: &str) {
        let mut config = ClusterMaintenanceConfig::default();
        config.agent_auto_update_groups.regular = groups;
        let version = AutoupdateVersion {
            description: String::new(),
            agent_version: version.parse().unwrap(),
            agent_version_schedule: Schedule::Regular,
        };
        let configs = maintenance_configs(&self.backend);
        configs.upsert("cluster-maintenance-config", &config, Default::default()).await.unwrap();
        let versions = autoupdate_versions(&self.backend);
        versions.upsert("autoupdate-version", &version, Default::default()).await.unwrap();
    }

    async fn turn(&self) {
        let mut trouble = None;
        self.rollouts.turn(&mut trouble).await;
        assert_eq!(trouble, None);
    }

    /// Turns until the group is so.
    async fn until(&self, name: &str, wanted: impl Fn(&GroupRecord) -> bool) -> GroupRecord {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            self.turn().await;
            let record = self.record(name).await;
            match record {
                Some(record) if wanted(&record) => return record,
                other => assert!(Instant::now() < end, "{name} stays as it is: {other:?}"),
            }
            tokio::task::yield_now().await;
        }
    }

    async fn record(&self, name: &str) -> Option<GroupRecord> {
        let item = self.backend.get(&group_key(&name.parse().unwrap()).unwrap()).await.unwrap()?;
        Some(serde_json::from_slice(&item.value).unwrap())
    }
}

fn store() -> SharedBackend {
    Arc::new(MemoryBackend::default())
}

#[tokio::test]
async fn a_decision_that_an_operator_was_quicker_than_undoes_nothing() {
    let bare = Bare::with_hosts(&store(), 4).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 4).await;
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    let due = bare.rollouts.due(usize::MAX).unwrap().remove(0);
    // The operator's change is read by this server before the decision is stored.
    bare.rollouts.set_paused(Some("all"), true, "alice").await.unwrap();
    let refused = bare.rollouts.carry_out(due, &mut Overlay::new()).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    assert!(bare.record("all").await.unwrap().paused.is_some(), "the pause is lost");
    let record = bare.until("all", |record| record.upgraded == 1).await;
    assert!(record.paused.is_some() && record.in_flight == 3);
}

#[tokio::test]
async fn what_another_server_has_carried_out_is_not_carried_out_again() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![group("all", 50)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    let other = Bare::knowing(&backend, "s2", 4).await;
    other.rollouts.look().await.unwrap();
    // From here on it learns late of hosts.
    other.stop.send(true).unwrap();
    tokio::task::yield_now().await;
    bare.until("all", |record| record.upgraded == 1 && record.in_flight == 2).await;

    other.rollouts.look().await.unwrap();
    let due = other.rollouts.due(usize::MAX).unwrap().remove(0);
    let marked: Vec<HostId> = due.decision.marks.iter().map(|(host, _)| *host).collect();
    assert_eq!(marked, [host(1), host(3)], "it has not heard that one has ended and the other has started");
    for n in 1..=4 {
        other.rollouts.fleet.refresh(host(n)).await.unwrap();
    }
    let refused = other.rollouts.carry_out(due, &mut Overlay::new()).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    let record = bare.record("all").await.unwrap();
    assert_eq!((record.upgraded, record.in_flight), (1, 2), "{record:?}");
}

#[tokio::test]
async fn a_decision_on_a_host_that_has_changed_since_is_not_carried_out() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    let due = bare.rollouts.due(usize::MAX).unwrap().remove(0);
    bare.hears(1, &beat("1.0.0", 2, 10)).await;
    let refused = bare.rollouts.carry_out(due, &mut Overlay::new()).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    assert_eq!(bare.record("all").await.unwrap().upgraded, 0, "it went back");
}

#[tokio::test]
async fn what_was_read_earlier_does_not_replace_what_was_read_later() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    let early = Stored::read(&bare.backend).await.unwrap();
    let asked = Instant::now();
    bare.until("all", |record| record.in_flight == 2).await;
    bare.rollouts.take_in(early.clone(), asked);
    let known = bare.rollouts.read().stored.clone();
    assert!(known.plan.is_some() && known.groups.len() == 1, "it went back: {known:?}");
    // And no epoch is begun from it under the conditions of a later one.
    bare.say(vec![group("all", 100)], "3.0.0").await;
    bare.rollouts.look().await.unwrap();
    let stale = refit_types::RolloutRecord {
        epoch: 1,
        fingerprint: "of long ago".into(),
        version: "1.5.0".parse().unwrap(),
        schedule: Schedule::Regular,
        began_at: Timestamp::now(),
        paused: None,
        unknown: Default::default(),
    };
    let refused = bare.rollouts.begin(stale, &early).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    let plan = bare.backend.get(&plan_key().unwrap()).await.unwrap().unwrap();
    let plan: refit_types::RolloutRecord = serde_json::from_slice(&plan.value).unwrap();
    assert_eq!((plan.epoch, plan.version.to_string().as_str()), (2, "3.0.0"));
}

#[tokio::test]
async fn a_group_that_this_server_has_just_written_is_not_forgotten() {
    let bare = Bare::with_hosts(&store(), 1).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.rollouts.look().await.unwrap();
    let before = Stored::read(&bare.backend).await.unwrap();
    bare.until("all", |record| record.in_flight == 1).await;
    let mut known = bare.rollouts.read().stored.clone();
    known.as_of = before.as_of;
    known.replace_by(before);
    assert_eq!(known.groups.len(), 1, "a read from before the write wins");
}

#[tokio::test]
async fn a_server_that_does_not_know_the_fleet_yet_counts_whom_it_removes() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 3).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 3).await;
    let now: fn() -> Timestamp = Timestamp::now;
    let fleet = Fleet::new(backend.clone(), "s2", now);
    let events = Arc::new(Events::new(backend.clone(), now));
    let (metrics, version) = (Metrics::new("1.0.0", "memory"), "1.0.0".parse().unwrap());
    let fresh = Rollouts::new(backend.clone(), fleet, events, metrics, "s2", version, now);
    assert!(fresh.remove(host(2), "alice").await.unwrap());
    let record = bare.record("all").await.unwrap();
    assert_eq!((record.members, record.removed, record.in_flight), (3, 1, 2));
}

#[tokio::test]
async fn what_a_host_says_after_its_arrival_is_not_undone_by_it() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    let rollouts = &bare.rollouts;
    assert!(!rollouts.takes(host(1), &beat("1.9.0", 1, 0)), "that is not the version");
    assert!(rollouts.takes(host(1), &beat("2.0.0", 11, 10)));
    assert!(rollouts.takes(host(1), &beat("2.0.0", 11, 10)), "said again, it waits on");
    assert!(!rollouts.takes(host(1), &beat("1.0.0", 1, 0)), "the process that was there before");
    assert_eq!(rollouts.arrivals.waiting().len(), 1, "and that changes nothing");
    assert!(!rollouts.takes(host(1), &beat("1.0.0", 12, 20)), "it went back");
    assert!(rollouts.arrivals.waiting().is_empty(), "the arrival would undo what is stored now");
    bare.hears(1, &beat("1.0.0", 12, 20)).await;
    bare.turn().await;
    let (known, _) = rollouts.fleet.known(host(1)).unwrap();
    assert_eq!(known.report.as_ref().unwrap().version.to_string(), "1.0.0");
    assert_eq!(bare.record("all").await.unwrap().upgraded, 0);

    assert!(rollouts.takes(host(2), &beat("2.0.0", 13, 10)));
    let record = bare.until("all", |record| record.upgraded == 1).await;
    assert_eq!(record.in_flight, 1);
    assert!(rollouts.arrivals.waiting().is_empty());
}

#[tokio::test]
async fn an_arrival_is_dropped_once_the_host_has_spoken_elsewhere() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 1).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 1).await;
    assert!(bare.rollouts.takes(host(1), &beat("2.0.0", 1, 0)));
    // It moves to another server, and says there that it has gone further.
    let other = Fleet::new(backend, "s2", Timestamp::now);
    other.heard(host(1), 0, &Arc::default(), &beat("2.0.1", 1, 0)).await.unwrap();
    bare.rollouts.fleet.departed(host(1), 0, Uuid::from_u128(1)).await;
    bare.rollouts.fleet.refresh(host(1)).await.unwrap();
    bare.turn().await;
    assert!(bare.rollouts.arrivals.waiting().is_empty());
    let (known, _) = bare.rollouts.fleet.known(host(1)).unwrap();
    assert_eq!(known.server.as_deref(), Some("s2"));
    assert_eq!(known.report.as_ref().unwrap().version.to_string(), "2.0.1");
}

#[tokio::test]
async fn a_host_that_is_gone_is_not_taken_for_heard() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    // Its new process arrives and ends before that is stored.
    assert!(bare.rollouts.takes(host(1), &beat("2.0.0", 21, 10)));
    bare.rollouts.fleet.note(host(1), 7, &Arc::default());
    bare.rollouts.fleet.departed(host(1), 7, Uuid::from_u128(21)).await;
    bare.until("all", |record| record.upgraded == 1).await;
    let server = || bare.rollouts.fleet.known(host(1)).unwrap().0.server.clone();
    assert_eq!(server().as_deref(), Some("s1"));
    bare.rollouts.let_go().await;
    assert_eq!(server(), None, "nobody hears it");
    assert_eq!(bare.rollouts.fleet.known(host(2)).unwrap().0.server.as_deref(), Some("s1"));
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
    bare.turn().await;
    bare.rollouts.fleet.departed(host(2), 0, Uuid::from_u128(2)).await;
    let month = Duration::from_secs(31 * 86_400);
    let is_long_lost = |n, now| {
        let (known, _) = bare.rollouts.fleet.known(host(n)).unwrap();
        bare.rollouts.is_long_lost(&known, now)
    };
    let (now, ahead) = (Timestamp::now(), Timestamp::now() + month);
    assert_eq!([is_long_lost(1, now), is_long_lost(2, now)], [false, false]);
    assert_eq!([is_long_lost(1, ahead), is_long_lost(2, ahead)], [false, true]);
    bare.rollouts.forget_lost(now).await;
    assert_eq!(bare.rollouts.fleet.len(), 2);
    bare.rollouts.forget_lost(ahead).await;
    assert!(bare.rollouts.fleet.known(host(1)).is_some() && bare.rollouts.fleet.known(host(2)).is_none());
}

#[tokio::test]
async fn an_agent_is_woken_with_its_hint() {
    let bare = Bare::with_hosts(&store(), 1).await;
    let news: Arc<Notify> = Arc::default();
    bare.rollouts.fleet.note(host(1), 1, &news);
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.turn().await;
    bare.until("all", |record| record.in_flight == 1).await;
    tokio::time::timeout(Duration::from_secs(20), news.notified()).await.expect("news");
    assert_eq!(bare.rollouts.hint(host(1), Uuid::from_u128(1)), Some(1));
    assert_eq!(bare.rollouts.hint(host(1), Uuid::from_u128(2)), None, "another process");
}

#[tokio::test]
async fn nobody_times_out_before_hosts_could_come_back() {
    let backend = store();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![Group { max_timeout_before_halt: Percent::ZERO, ..group("all", 100) }], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 4).await;
    // An hour without a server, in which the time of all is up.
    for n in 1..=4 {
        let key = Fleet::key(host(n)).unwrap();
        let item = backend.get(&key).await.unwrap().unwrap();
        let mut instance: refit_types::Instance = serde_json::from_slice(&item.value).unwrap();
        let upgrade = instance.upgrade.as_mut().unwrap();
        upgrade.start_time = Some(upgrade.start_time.unwrap() - Duration::from_secs(3600));
        backend.put(&key, serde_json::to_vec(&instance).unwrap().into()).await.unwrap();
    }
    drop(bare);
    let again = Bare::knowing(&backend, "s1", 4).await;
    for _ in 0..5 {
        again.turn().await;
    }
    let record = again.record("all").await.unwrap();
    assert_eq!((record.timed_out, record.is_halted()), (0, false), "{record:?}");
    for n in 1..=3 {
        again.hears(n, &beat("2.0.0", n, 0)).await;
    }
    let long_ago = Instant::now().checked_sub(Duration::from_secs(31));
    again.rollouts.write().heard_since = long_ago.or(Some(Instant::now()));
    let record = again.until("all", |record| record.timed_out == 1).await;
    assert_eq!((record.upgraded, record.in_flight), (3, 0), "{record:?}");
}
