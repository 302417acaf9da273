//! What operators said, the epoch, and the servers that live, as they are stored. Kept current by the owner of the
//! fleet's state.

use std::collections::BTreeMap;

use refit_backend::{Error, Expect, Item, Key, Result, Revision};
use refit_resources::{StorageFormat, autoupdate_version_v1, cluster_maintenance_config_v1};
use refit_rollout::{Plan, fingerprint};
use refit_types::{AutoupdateVersion, ClusterMaintenanceConfig, FeatureLevel, Kind, RolloutRecord, Schedule};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Features, server_registry};

/// Something stored, and when it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versioned<T> {
    pub(crate) value: T,
    pub(crate) revision: Revision,
}

/// What is stored, or why it cannot be read: a newer release may have written it.
pub(crate) type Readable<T> = std::result::Result<T, Box<str>>;

/// A record that may be there, and may be readable.
pub(crate) type Stored<T> = Option<Versioned<Readable<T>>>;

/// What operators said, the epoch and the servers that live, all from one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreSnapshot {
    /// That moment.
    pub(crate) as_of: Revision,
    pub(crate) config: Stored<ClusterMaintenanceConfig>,
    pub(crate) version: Stored<AutoupdateVersion>,
    pub(crate) plan: Stored<RolloutRecord>,
    /// The servers that live: what they hear is heard.
    pub(crate) servers: BTreeMap<Box<str>, Versioned<LiveServer>>,
    /// What the server that reads it can keep to.
    features: Features,
}

/// A server that lives, as far as others must know it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveServer {
    hostname: String,
    version: String,
    /// What it can keep to; nothing if its record does not tell.
    level: FeatureLevel,
}

/// One record of a snapshot as it is now; nothing if it is no more.
#[derive(Debug, Clone)]
pub(crate) enum SnapshotChange {
    Config(Stored<ClusterMaintenanceConfig>),
    Version(Stored<AutoupdateVersion>),
    Plan(Stored<RolloutRecord>),
    Server(Box<str>, Option<Versioned<LiveServer>>),
}

impl SnapshotChange {
    /// What a key and what is stored there mean for a snapshot; nothing if the key is of no interest to it.
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
    /// Nothing was read yet.
    pub(crate) fn empty(features: Features) -> Self {
        Self::at(Revision::default(), features)
    }

    /// Nothing is stored at that moment.
    pub(super) fn at(as_of: Revision, features: Features) -> Self {
        Self { as_of, features, ..Self::default() }
    }

    /// Takes what was read, unless something newer was read before: several ask at once, and the answers overtake
    /// each other. What is known to be newer, by the watch or because this server wrote it, stays.
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

    /// Takes in one change, unless a newer one of the same record is known.
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

    /// Why nothing may be decided or told from these records; nothing if it may.
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

    /// The level that what operators say now needs of every server.
    fn needed_level(&self) -> FeatureLevel {
        let needed = self.features.needed;
        let config = readable(&self.config).map(|config| needed(&config.clone().into()));
        let version = self.chosen().map(|version| needed(&version.clone().into()));
        config.max(version).unwrap_or_default()
    }

    /// A server that lives and is below that level, by what people know it by.
    pub(crate) fn server_below(&self, level: FeatureLevel) -> Option<String> {
        let (id, server) = self.servers.iter().find(|(_, server)| server.value.level < level)?;
        let LiveServer { hostname, version, level } = &server.value;
        Some(format!("{hostname} ({id}, version {version}) has level {level}"))
    }

    /// What the operator said, or the defaults.
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

    /// What is to be done, once an epoch has begun for what operators say now.
    pub(crate) fn current_plan(&self) -> Option<Plan> {
        let chosen = self.chosen().filter(|_| self.unusable().is_none())?;
        let (record, revision) = (readable(&self.plan)?, self.plan.as_ref()?.revision);
        let settings = self.settings();
        let wanted = fingerprint(&chosen.agent_version, chosen.agent_version_schedule, &settings);
        (record.fingerprint == wanted).then(|| Plan::new(record, revision, &settings))
    }

    /// The plan's record as it should be, if that is not as it is: another epoch, or another level in this one.
    pub(crate) fn due_plan(&self, now: jiff::Timestamp) -> Option<RolloutRecord> {
        let chosen = self.chosen().filter(|_| self.unusable().is_none())?;
        let (version, schedule): (_, Schedule) = (&chosen.agent_version, chosen.agent_version_schedule);
        let (fingerprint, level) = (fingerprint(version, schedule, &self.settings()), self.needed_level());
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

    /// Conditions under which what was decided from these holds: nobody changed what operators say.
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
