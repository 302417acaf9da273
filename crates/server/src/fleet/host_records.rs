//! The keys and parsing of host records, and the table of all of them. An unreadable record is not the same as an absent
//! one: a newer release may have written it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use refit_backend::{Change, Event, Item, Key, KeyRange, Result, Revision};
use refit_rollout::HostMap;
use refit_types::{GroupName, HostId, HostRecord};

use super::counters::Counters;
use super::store_snapshot::Versioned;

const PREFIX: &str = "/instances/v1/default";

/// Where all records are.
pub(crate) fn range() -> Result<KeyRange> {
    Ok(KeyRange::below(&Key::new(PREFIX)?))
}

/// Where a host's record is.
pub(crate) fn key(host: HostId) -> Result<Key> {
    Key::new(PREFIX)?.child(host)
}

/// The host whose record is there.
pub(crate) fn host_of(key: &Key) -> Option<HostId> {
    key.as_str().strip_prefix(PREFIX)?.strip_prefix('/')?.parse().ok()
}

/// What is stored of a host.
#[derive(Debug, Clone)]
pub(crate) enum HostRead {
    Record(Arc<HostRecord>),
    Unreadable(Arc<UnreadableHost>),
}

/// A record that is there and cannot be read. It is never written, and blocks its group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableHost {
    pub(crate) key: Box<str>,
    /// The group that it is a member of, if that much can be read.
    pub(crate) group: Option<GroupName>,
    pub(crate) error: Box<str>,
}

/// A change of one host's record from the watch; no record if the host was removed.
#[derive(Debug)]
pub(crate) struct HostEvent {
    pub(crate) host: HostId,
    pub(crate) revision: Revision,
    pub(crate) read: Option<HostRead>,
}

impl HostRead {
    /// Reads what is stored of a host.
    pub(crate) fn of(item: &Item) -> Self {
        let read = serde_json::from_slice::<HostRecord>(&item.value).map_err(|error| error.to_string());
        let is_its_own = |host_record: &HostRecord| host_of(&item.key) == Some(host_record.host_id);
        let read = read.and_then(|host_record| match is_its_own(&host_record) {
            true => Ok(host_record),
            false => Err(format!("it is of the host {}", host_record.host_id)),
        });
        match read {
            Ok(host_record) => Self::Record(Arc::new(host_record)),
            Err(error) => {
                let value: Option<serde_json::Value> = serde_json::from_slice(&item.value).ok();
                let group = value.as_ref().and_then(|value| {
                    value.get("upgrade")?.get("agent_upgrade_group_name")?.as_str()?.parse().ok()
                });
                tracing::error!(
                    key = %item.key, error,
                    "the record of a host cannot be read, so its group is blocked; was it written by a newer release?"
                );
                let (key, error) = (item.key.as_str().into(), error.into());
                Self::Unreadable(Arc::new(UnreadableHost { key, group, error }))
            }
        }
    }
}

impl HostEvent {
    /// What a change of the store says of a host; nothing if it is of something else.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let host = host_of(event.key())?;
        let read = match &event.change {
            Change::Put(item) => Some(HostRead::of(item)),
            Change::Delete(_) => None,
        };
        Some(Self { host, revision: event.revision, read })
    }
}

/// Hosts by the server that they are connected to, so that a started or stopped server costs only its own hosts.
#[derive(Debug, Default)]
pub(crate) struct ByServer(HashMap<Box<str>, BTreeSet<HostId>>);

impl ByServer {
    pub(crate) fn moved(&mut self, host: HostId, from: Option<&str>, to: Option<&str>) {
        if from == to {
            return;
        }
        if let Some(from) = from
            && let Some(hosts) = self.0.get_mut(from)
        {
            hosts.remove(&host);
            if hosts.is_empty() {
                self.0.remove(from);
            }
        }
        if let Some(to) = to {
            match self.0.get_mut(to) {
                Some(hosts) => drop(hosts.insert(host)),
                None => drop(self.0.insert(to.into(), BTreeSet::from([host]))),
            }
        }
    }

    /// Some hosts of a server, behind that one.
    pub(crate) fn after(&self, server: &str, after: Option<HostId>, count: usize) -> Vec<HostId> {
        let start = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let hosts = self.0.get(server).map(|hosts| hosts.range((start, std::ops::Bound::Unbounded)));
        hosts.into_iter().flatten().take(count).copied().collect()
    }
}

/// Every record of hosts as it was loaded, with what is counted of them.
#[derive(Debug, Default)]
pub(crate) struct HostRecords {
    pub(crate) hosts: HostMap<Versioned<Arc<HostRecord>>>,
    pub(crate) unreadable: Arc<BTreeMap<HostId, Versioned<Arc<UnreadableHost>>>>,
    pub(crate) by_server: ByServer,
    pub(crate) counters: Counters,
}

impl HostRecords {
    /// Applies a record, unless an equally new one is known. Returns the one before.
    pub(crate) fn set(&mut self, host: HostId, host_record: Arc<HostRecord>, revision: Revision) -> Applied {
        if self.revision(host).is_some_and(|known| known >= revision) {
            return Applied::Outdated;
        }
        self.forget_unreadable(host);
        let to = host_record.server.as_deref();
        let before = self.hosts.insert(host, Versioned { value: host_record.clone(), revision });
        let before = before.map(|before| before.value);
        self.by_server.moved(host, before.as_ref().and_then(|before| before.server.as_deref()), to);
        self.counters.changed(before.as_deref(), Some(&host_record));
        Applied::Changed { before }
    }

    /// Applies that a record cannot be read. The last readable one is kept, and shown.
    pub(crate) fn set_unreadable(
        &mut self,
        host: HostId,
        unreadable: Arc<UnreadableHost>,
        revision: Revision,
    ) -> Applied {
        if self.revision(host).is_some_and(|known| known >= revision) {
            return Applied::Outdated;
        }
        self.counters.changes += 1;
        Arc::make_mut(&mut self.unreadable).insert(host, Versioned { value: unreadable, revision });
        Applied::Changed { before: None }
    }

    /// Applies that a record was deleted.
    pub(crate) fn remove(&mut self, host: HostId, at: Revision) -> Applied {
        if self.revision(host).is_none_or(|known| known >= at) {
            return Applied::Outdated;
        }
        self.forget_unreadable(host);
        let before = self.hosts.remove(host).map(|before| before.value);
        self.by_server.moved(host, before.as_ref().and_then(|before| before.server.as_deref()), None);
        self.counters.changed(before.as_deref(), None);
        Applied::Changed { before }
    }

    fn forget_unreadable(&mut self, host: HostId) {
        if self.unreadable.contains_key(&host) {
            Arc::make_mut(&mut self.unreadable).remove(&host);
        }
    }

    /// The revision of what is known about the host.
    fn revision(&self, host: HostId) -> Option<Revision> {
        let unreadable = self.unreadable.get(&host).map(|unreadable| unreadable.revision);
        unreadable.or_else(|| self.hosts.get(host).map(|known| known.revision))
    }
}

/// The result of applying a change.
#[derive(Debug)]
pub(crate) enum Applied {
    /// Something as new was known.
    Outdated,
    /// It is known now, and what was known before.
    Changed { before: Option<Arc<HostRecord>> },
}
