//! One consistent reading of everything stored about rollouts except hosts. Operators' actions start from one; the owner
//! of the fleet's state passes its group records to the engine, which alone keeps them.

use std::collections::BTreeMap;

use refit_backend::{
    Change, Event, Expect, Item, Key, KeyRange, MAX_PAGE_ITEMS, Read, Result, Revision, SharedBackend,
};
use refit_types::{GroupName, GroupRecord, RolloutRecord};

use super::store_snapshot::{
    Readable, SnapshotChange, StoreSnapshot, Stored, Versioned, as_it_is, config_key, decoded, plan_key,
    version_key,
};
use crate::{Features, server_registry};

const GROUPS: &str = "/rollouts/v1/default/groups";

/// The records of groups, each with its revision.
pub(crate) type GroupRecords = BTreeMap<GroupName, Versioned<Readable<GroupRecord>>>;

/// Everything stored about rollouts except hosts, at one revision.
#[derive(Debug, Clone)]
pub(crate) struct StoreReading {
    pub(crate) snapshot: StoreSnapshot,
    pub(crate) groups: GroupRecords,
}

/// A change of one record; none if it was deleted.
#[derive(Debug)]
pub(crate) enum StoreChange {
    Snapshot(Box<SnapshotChange>),
    Group(GroupName, Box<Stored<GroupRecord>>),
}

/// Where a group's record is.
pub(crate) fn group_key(name: &GroupName) -> Result<Key> {
    Key::new(GROUPS)?.child(name)
}

impl StoreChange {
    /// The change that a key and its item mean for rollouts; none if the key does not concern them.
    pub(crate) fn of(event: &Event) -> Option<(Self, Revision)> {
        let change = match &event.change {
            Change::Put(item) => Self::of_key(&item.key, Some(item)),
            Change::Delete(key) => Self::of_key(key, None),
        };
        Some((change?, event.revision))
    }

    fn of_key(key: &Key, item: Option<&Item>) -> Option<Self> {
        match key.as_str().strip_prefix(GROUPS).and_then(|rest| rest.strip_prefix('/')) {
            Some(name) => Some(Self::Group(name.parse().ok()?, Box::new(item.map(decoded)))),
            None => SnapshotChange::of_key(key, item).map(|change| Self::Snapshot(Box::new(change))),
        }
    }
}

impl StoreReading {
    pub(crate) async fn read(backend: &SharedBackend, features: Features) -> Result<Self> {
        let below = |prefix: &str| -> Result<Read> {
            Ok(Read::Range { range: KeyRange::below(&Key::new(prefix)?), limit: MAX_PAGE_ITEMS })
        };
        let reads = [
            Read::Key(config_key()?),
            Read::Key(version_key()?),
            Read::Key(plan_key()?),
            below(GROUPS)?,
            below(server_registry::PREFIX)?,
        ];
        let mut read = backend.read(&reads).await?;
        let snapshot = StoreSnapshot::at(read.revision, features);
        let mut reading = Self { snapshot, groups: GroupRecords::new() };
        for number in 0..reads.len() {
            for item in read.take(number).items {
                match StoreChange::of_key(&item.key, Some(&item)) {
                    Some(StoreChange::Snapshot(change)) => reading.snapshot.set(*change),
                    Some(StoreChange::Group(name, record)) => {
                        reading.groups.extend(record.map(|record| (name, record)));
                    }
                    None => {}
                }
            }
        }
        Ok(reading)
    }

    /// The group's record in an epoch; of a record of another epoch only the pause counts.
    pub(crate) fn group_in(&self, name: &GroupName, epoch: &RolloutRecord) -> Readable<GroupRecord> {
        match self.groups.get(name).map(|group| &group.value) {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(record)) if record.epoch == epoch.epoch => Ok(record.clone()),
            Some(Ok(record)) => Ok(record.renewed(epoch.epoch, epoch.began_at)),
            None => Ok(GroupRecord::fresh(epoch.epoch, epoch.began_at)),
        }
    }

    /// The condition that a group's record is as it was read.
    pub(crate) fn group_unchanged(&self, name: &GroupName) -> Result<(Key, Expect)> {
        Ok((group_key(name)?, as_it_is(self.groups.get(name))))
    }
}
