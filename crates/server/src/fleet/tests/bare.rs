//! The owner and its handle without a network port, with helpers to act as hosts and operators.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_backend::{Key, MemoryBackend, SharedBackend};
use refit_resources::{Stores, open_store};
use refit_testbed::eventually;
use refit_types::{
    AgentRole, AutoupdateVersion, ClusterMaintenanceConfig, Edition, Group, GroupRecord, HostId, HostLimit,
    HostRecord, Report, Resource, RotationMark, Schedule, Session, UpgraderKind, WeeklyWindow,
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::Features;
use crate::events::Events;
use crate::fleet::{Connection, Dependencies, Fleet, Heartbeat, HeartbeatResult, Owner, group_key};
use crate::metrics::Metrics;
use crate::rollout::Rollouts;

pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// A server without a port.
pub(crate) struct Bare {
    pub(crate) backend: SharedBackend,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) rollouts: Arc<Rollouts>,
    pub(crate) metrics: Arc<Metrics>,
    connections: Mutex<HashMap<HostId, Arc<Connection>>>,
    stop: watch::Sender<bool>,
}

pub(crate) fn store() -> SharedBackend {
    Arc::new(MemoryBackend::default())
}

pub(crate) fn host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

pub(crate) fn beat(version: &str, session: u128, started: i64) -> Heartbeat {
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
            platform: None,
        },
    }
}

pub(crate) fn group(name: &str, share: u8) -> Group {
    let hour = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
    let start_hour = u8::try_from((hour + 12) % 24).unwrap();
    Group {
        window: WeeklyWindow { start_hour, window_hours: 24, ..WeeklyWindow::default() },
        max_in_flight: HostLimit::percent(share).unwrap(),
        timeout_seconds: 900,
        ..Group::named(name.parse().unwrap())
    }
}

impl Bare {
    /// One that reads and decides when it is told to.
    pub(crate) fn new(backend: &SharedBackend, name: &str) -> Self {
        Self::of_level(backend, name, Features::current())
    }

    /// One of a release that can keep to so much.
    pub(crate) fn of_level(backend: &SharedBackend, name: &str, features: Features) -> Self {
        let (bare, owner) = Self::with_owner(backend, name, features);
        tokio::spawn(owner.run(bare.stop.subscribe()));
        bare
    }

    /// One that never loads its fleet.
    pub(crate) fn never_loaded(backend: &SharedBackend) -> Self {
        Self::with_owner(backend, "s1", Features::current()).0
    }

    fn with_owner(backend: &SharedBackend, name: &str, features: Features) -> (Self, Owner) {
        let now: fn() -> Timestamp = Timestamp::now;
        let events = Arc::new(Events::new(backend.clone(), now));
        let (metrics, server): (_, Arc<str>) = (Metrics::new("1.0.0", "memory"), name.into());
        let (fleet, owner) = Fleet::new(Dependencies {
            backend: backend.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            server: server.clone(),
            own_version: "1.0.0".parse().unwrap(),
            features,
            now,
        });
        let rollouts = Rollouts::new(backend.clone(), fleet.clone(), events, server, features, now);
        let (backend, connections) = (backend.clone(), Mutex::default());
        (Self { backend, fleet, rollouts, metrics, connections, stop: watch::Sender::new(false) }, owner)
    }

    /// One that lives and knows its fleet, in which `hosts` have the old version.
    pub(crate) async fn with_hosts(backend: &SharedBackend, hosts: u128) -> Self {
        let bare = Self::new(backend, "s1");
        bare.backend.put(&Key::new("/servers/v1/default/s1").unwrap(), "{}".into()).await.unwrap();
        bare.knows(0).await;
        for n in 1..=hosts {
            bare.joins(n).await;
            bare.hears(n, &beat("1.0.0", n, 0)).await;
        }
        bare
    }

    pub(crate) async fn joins(&self, n: u128) {
        self.fleet.join(host(n), "web", &[AgentRole::Node], false).await.unwrap();
    }

    /// Waits until it knows that many hosts.
    pub(crate) async fn knows(&self, hosts: usize) {
        let loaded = async || self.fleet.is_loaded() && self.fleet.view().hosts.len() >= hosts;
        eventually("the fleet is known", WITHIN, loaded).await;
    }

    pub(crate) fn connection(&self, n: u128) -> Arc<Connection> {
        let mut connections = self.connections.lock().unwrap();
        connections.entry(host(n)).or_insert_with(|| self.fleet.connect()).clone()
    }

    pub(crate) async fn hears(&self, n: u128, heartbeat: &Heartbeat) -> HeartbeatResult {
        self.fleet.heartbeat(host(n), &self.connection(n), heartbeat.clone()).await.unwrap()
    }

    /// The stream of a host ends, and that is known.
    pub(crate) async fn loses(&self, n: u128, session: u128) {
        let connection = self.connection(n);
        self.connections.lock().unwrap().remove(&host(n));
        self.fleet.disconnected(host(n), Some(connection.stream), Uuid::from_u128(session)).await;
        let is_gone = async || self.known(n).server.as_deref() != Some("s1");
        eventually("the host is gone", WITHIN, is_gone).await;
    }

    pub(crate) fn known(&self, n: u128) -> Arc<HostRecord> {
        self.fleet.known(host(n)).unwrap().0
    }

    pub(crate) async fn say(&self, groups: Vec<Group>, version: &str) {
        let mut config = ClusterMaintenanceConfig::default();
        config.agent_auto_update_groups.regular = groups;
        let version = AutoupdateVersion {
            description: String::new(),
            agent_version: version.parse().unwrap(),
            agent_version_schedule: Schedule::Regular,
        };
        let stores = Stores::open(&self.backend, open_store).unwrap();
        for resource in [Resource::from(config), Resource::from(version)] {
            stores.of(resource.kind()).upsert(resource.name(), &resource, &[]).await.unwrap();
        }
    }

    /// Reads the store and decides until the group is so.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&GroupRecord) -> bool) -> GroupRecord {
        let end = Instant::now() + WITHIN;
        loop {
            self.rollouts.operator_changed().await.unwrap();
            match self.record(name).await {
                Some(record) if wanted(&record) => return record,
                other => assert!(Instant::now() < end, "{name} stays as it is: {other:?}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Has it decide some more, and shows the group.
    pub(crate) async fn settled(&self, name: &str) -> GroupRecord {
        for _ in 0..5 {
            self.rollouts.operator_changed().await.unwrap();
            tokio::task::yield_now().await;
        }
        self.record(name).await.unwrap()
    }

    pub(crate) async fn record(&self, name: &str) -> Option<GroupRecord> {
        let item = self.backend.get(&group_key(&name.parse().unwrap()).unwrap()).await.unwrap()?;
        Some(serde_json::from_slice(&item.value).unwrap())
    }

    /// Why a group does not move, in words.
    pub(crate) fn waiting(&self, name: &str) -> String {
        let groups = self.rollouts.status().groups;
        groups.into_iter().find(|group| group.name == name).map(|group| group.waiting).unwrap_or_default()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
