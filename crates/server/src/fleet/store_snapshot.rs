//! The stored settings of operators, the epoch, and the live servers. The owner of the fleet's state keeps it current.

use std::collections::BTreeMap;

use refit_backend::{Error, Expect, Item, Key, Result, Revision};
use refit_resources::{StorageFormat, autoupdate_version_v1, cluster_maintenance_config_v1};
use refit_rollout::{Plan, fingerprint};
use refit_types::{AutoupdateVersion, ClusterMaintenanceConfig, FeatureLevel, Kind, RolloutRecord, Schedule};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Features, server_registry};

/// A stored value with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versioned<T> {
    pub(crate) value: T,
    pub(crate) revision: Revision,
}

/// A stored value, or why it cannot be read: a newer release may have written it.
pub(crate) type Readable<T> = std::result::Result<T, Box<str>>;

/// A record that may be absent or unreadable.
pub(crate) type Stored<T> = Option<Versioned<Readable<T>>>;

/// The operators' settings, the epoch and the live servers at one revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreSnapshot {
    /// That revision.
    pub(crate) as_of: Revision,
    pub(crate) config: Stored<ClusterMaintenanceConfig>,
    pub(crate) version: Stored<AutoupdateVersion>,
    pub(crate) plan: Stored<RolloutRecord>,
    /// The live servers: hosts that are connected to one of them are connected.
    pub(crate) servers: BTreeMap<Box<str>, Versioned<LiveServer>>,
    /// The features of this server.
    features: Features,
}

/// A live server, as far as others need to know it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveServer {
    hostname: String,
    version: String,
    /// Its feature level; none if its record has no level.
    level: FeatureLevel,
}

/// A change of one record of a snapshot; none if it was deleted.
#[derive(Debug, Clone)]
pub(crate) enum SnapshotChange {
    Config(Stored<ClusterMaintenanceConfig>),
    Version(Stored<AutoupdateVersion>),
    Plan(Stored<RolloutRecord>),
    Server(Box<str>, Option<Versioned<LiveServer>>),
}

impl SnapshotChange {
    /// The change that a key and its item mean for a snapshot; none if the key does not belong to it.
    pub(super) fn of_key(key: &Key, item: Option<&Item>) -> Option<Self> {
        let text = key.as_str();
        let name = |prefix: &str| text.strip_prefix(prefix)?.strip_prefix('/');
        if let Some(id) = name(server_registry::PREFIX) {
            let record = item.map(|item| Versioned {
                value: serde_json::from_slice(&item.value).unwrap_or_default(),
                revision: item.revision,
            });
            return Some(Self::Server(id.into(), record));
        }
        if text == PLAN {
            return Some(Self::Plan(item.map(decoded)));
        }
        if config_key().is_ok_and(|config| config == *key) {
            return Some(Self::Config(item.map(|item| resource(&cluster_maintenance_config_v1(), item))));
        }
        if version_key().is_ok_and(|version| version == *key) {
            return Some(Self::Version(item.map(|item| resource(&autoupdate_version_v1(), item))));
        }
        None
    }
}

impl StoreSnapshot {
    /// Before the first reading.
    pub(crate) fn empty(features: Features) -> Self {
        Self::at(Revision::default(), features)
    }

    /// An empty store at that revision.
    pub(super) fn at(as_of: Revision, features: Features) -> Self {
        Self { as_of, features, ..Self::default() }
    }

    /// Replaces the snapshot by a reading, unless the reading is older: concurrent readings may arrive out of order.
    /// Records that are newer than the reading, from the watch or from this server's own writes, are kept.
    pub(crate) fn replace_by(&mut self, read: Self) {
        fn newer<T>(known: Stored<T>, read: Stored<T>, as_of: Revision) -> Stored<T> {
            if known.as_ref().is_some_and(|known| known.revision > as_of) { known } else { read }
        }
        if read.as_of < self.as_of {
            return;
        }
        let as_of = read.as_of;
        let known = std::mem::replace(self, read);
        self.config = newer(known.config, self.config.take(), as_of);
        self.version = newer(known.version, self.version.take(), as_of);
        self.plan = newer(known.plan, self.plan.take(), as_of);
        self.servers.extend(known.servers.into_iter().filter(|(_, server)| server.revision > as_of));
    }

    /// Applies one change, unless a newer one of the same record is known.
    pub(crate) fn apply(&mut self, change: SnapshotChange, at: Revision) {
        let known = match &change {
            SnapshotChange::Config(_) => self.config.as_ref().map(|known| known.revision),
            SnapshotChange::Version(_) => self.version.as_ref().map(|known| known.revision),
            SnapshotChange::Plan(_) => self.plan.as_ref().map(|known| known.revision),
            SnapshotChange::Server(id, _) => self.servers.get(id).map(|known| known.revision),
        };
        if known.is_none_or(|known| known < at) {
            self.set(change);
        }
    }

    pub(super) fn set(&mut self, change: SnapshotChange) {
        match change {
            SnapshotChange::Config(config) => self.config = config,
            SnapshotChange::Version(version) => self.version = version,
            SnapshotChange::Plan(plan) => self.plan = plan,
            SnapshotChange::Server(id, Some(server)) => drop(self.servers.insert(id, server)),
            SnapshotChange::Server(id, None) => drop(self.servers.remove(&id)),
        }
    }

    /// Why these records must not be used for decisions and answers; none if they may.
    pub(crate) fn unusable(&self) -> Option<String> {
        let unreadable = |key: Result<Key>, error: Option<&str>| {
            let (key, error) = (key.ok()?, error?);
            Some(format!("{key} cannot be read ({error}); was it written by a newer release?"))
        };
        fn error<T>(stored: &Stored<T>) -> Option<&str> {
            stored.as_ref()?.value.as_ref().err().map(|error| &**error)
        }
        unreadable(config_key(), error(&self.config))
            .or_else(|| unreadable(version_key(), error(&self.version)))
            .or_else(|| unreadable(plan_key(), error(&self.plan)))
            .or_else(|| {
                let needed = readable(&self.plan).map(|plan| plan.level).unwrap_or_default();
                let own = self.features.level;
                (needed > own).then(|| {
                    format!("the rollout needs feature level {needed}, and this server has {own}; upgrade it")
                })
            })
    }

    /// The feature level that the operators' settings need of every server, while the rollout is paused or is not.
    pub(crate) fn needed_level(&self, is_paused: bool) -> FeatureLevel {
        let Features { needed, needed_while_paused, .. } = self.features;
        let config = readable(&self.config).map(|config| needed(&config.clone().into()));
        let version = self.chosen().map(|version| needed(&version.clone().into()));
        let paused = self.chosen().filter(|_| is_paused).map(needed_while_paused);
        config.max(version).max(paused).unwrap_or_default()
    }

    /// A live server below that level, described for people.
    pub(crate) fn server_below(&self, level: FeatureLevel) -> Option<String> {
        let (id, server) = self.servers.iter().find(|(_, server)| server.value.level < level)?;
        let LiveServer { hostname, version, level } = &server.value;
        Some(format!("{hostname} ({id}, version {version}) has level {level}"))
    }

    /// The operator's configuration, or the defaults.
    pub(crate) fn settings(&self) -> ClusterMaintenanceConfig {
        readable(&self.config).cloned().unwrap_or_default()
    }

    /// The version that the operator chose.
    pub(crate) fn chosen(&self) -> Option<&AutoupdateVersion> {
        readable(&self.version)
    }

    /// The epoch's record, while a version is chosen.
    pub(crate) fn rollout(&self) -> Option<&RolloutRecord> {
        self.chosen().and(readable(&self.plan))
    }

    /// The plan, once an epoch has begun for the current settings.
    pub(crate) fn current_plan(&self) -> Option<Plan> {
        let chosen = self.chosen().filter(|_| self.unusable().is_none())?;
        let (record, revision) = (readable(&self.plan)?, self.plan.as_ref()?.revision);
        let settings = self.settings();
        let current = fingerprint(&chosen.agent_version, chosen.agent_version_schedule, &settings);
        (record.fingerprint == current).then(|| Plan::new(record, revision, &settings))
    }

    /// The plan's record that should be stored, if it differs: a new epoch, or another level in this one.
    pub(crate) fn due_plan(&self, now: jiff::Timestamp) -> Option<RolloutRecord> {
        let chosen = self.chosen().filter(|_| self.unusable().is_none())?;
        let (version, schedule): (_, Schedule) = (&chosen.agent_version, chosen.agent_version_schedule);
        let fingerprint = fingerprint(version, schedule, &self.settings());
        let level = self.needed_level(readable(&self.plan).is_some_and(|plan| plan.paused.is_some()));
        let Some(before) = readable(&self.plan) else {
            let begun = RolloutRecord::begun(1, fingerprint, version.clone(), schedule, now);
            return Some(RolloutRecord { level, ..begun });
        };
        let is_same_epoch = before.fingerprint == fingerprint;
        match is_same_epoch {
            true if before.level == level => None,
            true => Some(RolloutRecord { level, ..before.clone() }),
            false => Some(RolloutRecord {
                epoch: before.epoch + 1,
                fingerprint,
                version: version.clone(),
                schedule,
                began_at: now,
                level,
                ..before.clone()
            }),
        }
    }

    /// The conditions under which a decision from this snapshot is valid: the operators' settings are unchanged.
    pub(crate) fn unchanged(&self) -> Result<[(Key, Expect); 3]> {
        Ok([
            (config_key()?, as_it_is(self.config.as_ref())),
            (version_key()?, as_it_is(self.version.as_ref())),
            (plan_key()?, as_it_is(self.plan.as_ref())),
        ])
    }
}

/// The record, if it is there and can be read.
pub(crate) fn readable<T>(stored: &Stored<T>) -> Option<&T> {
    stored.as_ref()?.value.as_ref().ok()
}

pub(crate) fn as_it_is<T>(stored: Option<&Versioned<T>>) -> Expect {
    stored.map_or(Expect::Absent, |stored| Expect::Revision(stored.revision))
}

const PLAN: &str = "/rollouts/v1/default/plan";

pub(super) fn config_key() -> Result<Key> {
    cluster_maintenance_config_v1().key(Kind::ClusterMaintenanceConfig.singleton().unwrap_or_default())
}

pub(super) fn version_key() -> Result<Key> {
    autoupdate_version_v1().key(Kind::AutoupdateVersion.singleton().unwrap_or_default())
}

pub(crate) fn plan_key() -> Result<Key> {
    Key::new(PLAN)
}

fn resource<T>(form: &StorageFormat<T>, item: &Item) -> Versioned<Readable<T>> {
    let value = (form.decode)(form.name(&item.key), &item.value).map_err(|reason| reason.to_string().into());
    Versioned { value, revision: item.revision }
}

pub(super) fn decoded<T: DeserializeOwned>(item: &Item) -> Versioned<Readable<T>> {
    let value = serde_json::from_slice(&item.value).map_err(|error| error.to_string().into());
    Versioned { value, revision: item.revision }
}

pub(crate) fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::Invalid(error.to_string()))
}
