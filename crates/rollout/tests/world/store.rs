//! The store of the property tests: records with revisions, and the event log that servers watch with a delay.

use std::collections::BTreeMap;

use jiff::Timestamp;
use refit_types::{GroupRecord, HostId, HostRecord, Revision};

use crate::model::{Gone, Settings};

/// A value and the revision at which it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T> {
    pub revision: Revision,
    pub value: T,
}

/// One write, as watchers see it.
#[derive(Debug, Clone)]
pub struct Event {
    pub at: Timestamp,
    pub revision: Revision,
    pub change: Change,
}

#[derive(Debug, Clone)]
pub enum Change {
    Settings(Box<Settings>),
    Group(String, Box<GroupRecord>),
    Host(HostId, Option<Box<HostRecord>>),
}

/// All records, as the store has them or as a server believes it.
#[derive(Debug, Clone)]
pub struct Records {
    pub settings: Stored<Settings>,
    pub groups: BTreeMap<String, Stored<GroupRecord>>,
    /// Hosts that were deleted keep the revision of that.
    pub hosts: BTreeMap<HostId, Stored<Option<Box<HostRecord>>>>,
}

/// The one store of the cluster: what is there now, and every write that ever was.
#[derive(Debug, Clone)]
pub struct Store {
    pub revision: Revision,
    pub records: Records,
    pub gone: Vec<Gone>,
    /// What a watch tells, in order; each server is as far behind as it happens to be.
    pub log: Vec<Event>,
}

impl Store {
    pub fn new(settings: Settings, now: Timestamp) -> Self {
        let mut store = Self {
            revision: Revision(1),
            records: Records {
                settings: Stored { revision: Revision(1), value: settings.clone() },
                groups: BTreeMap::new(),
                hosts: BTreeMap::new(),
            },
            gone: Vec::new(),
            log: Vec::new(),
        };
        store.put_settings(settings, now);
        store
    }

    pub fn clone_hosts(&self, hosts: impl Iterator<Item = HostId>) -> Vec<HostRecord> {
        hosts.filter_map(|host| self.records.host_record(host).cloned()).collect()
    }

    fn note(&mut self, at: Timestamp, change: Change) {
        self.log.push(Event { at, revision: self.revision, change });
    }

    pub fn put_settings(&mut self, settings: Settings, at: Timestamp) {
        self.revision.0 += 1;
        self.records.settings = Stored { revision: self.revision, value: settings.clone() };
        self.note(at, Change::Settings(Box::new(settings)));
    }

    /// Writes of one transaction have one revision.
    pub fn put_together(
        &mut self,
        group: Option<(String, GroupRecord)>,
        hosts: Vec<(HostId, Option<Box<HostRecord>>)>,
        at: Timestamp,
    ) -> Revision {
        self.revision.0 += 1;
        let revision = self.revision;
        if let Some((name, record)) = group {
            self.records.groups.insert(name.clone(), Stored { revision, value: record.clone() });
            self.note(at, Change::Group(name, Box::new(record)));
        }
        for (host, host_record) in hosts {
            self.records.hosts.insert(host, Stored { revision, value: host_record.clone() });
            self.note(at, Change::Host(host, host_record));
        }
        revision
    }
}

impl Records {
    pub fn settings(&self) -> &Settings {
        &self.settings.value
    }

    pub fn host_record(&self, host: HostId) -> Option<&HostRecord> {
        self.hosts.get(&host)?.value.as_deref()
    }

    pub fn host_records(&self) -> Vec<&HostRecord> {
        self.hosts.values().filter_map(|stored| stored.value.as_deref()).collect()
    }

    /// The group's record in this epoch; that of an earlier one says nothing but whether it is paused.
    pub fn group(&self, name: &str) -> GroupRecord {
        let rollout = &self.settings.value.rollout;
        let fresh = GroupRecord::fresh(rollout.epoch, rollout.began_at);
        match self.groups.get(name).map(|stored| &stored.value) {
            Some(record) if record.epoch == rollout.epoch => record.clone(),
            Some(record) => GroupRecord { paused: record.paused, ..fresh },
            None => fresh,
        }
    }
}
