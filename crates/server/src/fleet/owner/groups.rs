//! The records of groups. Only the engine keeps them, so that a decision and the revisions compared at its commit come
//! from the same state. Without an engine they are kept here for the next one.

use std::collections::BTreeSet;

use refit_backend::Revision;
use refit_rollout::{Engine, Stopped};
use refit_types::{GroupName, GroupRecord};

use super::Owner;
use crate::fleet::store_reading::{GroupRecords, group_key};
use crate::fleet::store_snapshot::{Readable, Versioned};

impl Owner {
    /// Applies the records of all groups from a reading. A group without a record is gone, unless its known record is
    /// newer than the reading.
    pub(super) fn take_groups(&mut self, read: GroupRecords, as_of: Revision) {
        let is_gone = |name: &GroupName| !read.contains_key(name);
        let gone: BTreeSet<GroupName> = match &self.engine {
            Some(engine) => {
                let names = engine.plan().groups.iter().map(|group| &group.name);
                names.filter(|name| is_gone(name)).cloned().collect()
            }
            None => self.groups.keys().filter(|name| is_gone(name)).cloned().collect(),
        };
        gone.into_iter().for_each(|name| self.set_group(name, None, as_of));
        for (name, group) in read {
            let revision = group.revision;
            self.set_group(name, Some(group.value), revision);
        }
    }

    /// Applies one group's record, unless a newer one is known.
    pub(super) fn set_group(
        &mut self,
        name: GroupName,
        record: Option<Readable<GroupRecord>>,
        revision: Revision,
    ) {
        self.unpublished.is_dirty = true;
        let Some(engine) = &mut self.engine else {
            let is_newer = self.groups.get(&name).is_none_or(|known| known.revision <= revision);
            match record.filter(|_| is_newer) {
                Some(value) => drop(self.groups.insert(name, Versioned { value, revision })),
                None if is_newer => drop(self.groups.remove(&name)),
                None => {}
            }
            return;
        };
        let Some(position) = engine.plan().position(name.as_str()) else { return };
        let window = |engine: &Engine| engine.view().group_record(position).and_then(|record| record.window);
        let before = window(engine);
        tell(engine, position, &name, record, revision);
        // The start of a host may become known before the window of its group: then its agent is woken now.
        self.unpublished.wake_all |= window(engine) != before;
    }

    /// Passes the records of groups to a new engine, from the previous one or from here.
    pub(super) fn hand_groups_to(&mut self, engine: &mut Engine) {
        self.drop_engine();
        for (name, group) in std::mem::take(&mut self.groups) {
            if let Some(position) = engine.plan().position(name.as_str()) {
                tell(engine, position, &name, Some(group.value), group.revision);
            }
        }
    }

    /// Drops the engine and keeps its group records for the next one.
    pub(super) fn drop_engine(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        for (name, record, revision) in engine.into_group_records() {
            let unreadable = || "a newer release wrote it".into();
            let value = record.ok_or_else(unreadable);
            self.groups.insert(name, Versioned { value, revision });
        }
    }

    /// Why the rollout is stopped, by the records that are kept here while there is no engine.
    pub(super) fn stopped_without_engine(&self) -> Option<Stopped> {
        if self.engine.is_some() {
            return None;
        }
        if self.snapshot.unusable().is_some() {
            return Some(Stopped::Unclear);
        }
        let rollout = self.snapshot.rollout()?;
        // None while an epoch begins: nothing has halted in it.
        let groups = self.snapshot.current_plan().map(|plan| plan.groups).unwrap_or_default();
        let records = groups.iter().filter_map(|group| self.groups.get(&group.name));
        let current = records.filter_map(|group| match &group.value {
            Ok(record) => (record.epoch == rollout.epoch).then_some(Some(record)),
            Err(_) => Some(None),
        });
        Stopped::of(rollout.paused.is_some(), current)
    }

    /// How many records of groups cannot be read.
    pub(super) fn unreadable_groups(&self) -> usize {
        let kept = self.groups.values().filter(|group| group.value.is_err()).count();
        kept + self.engine.as_ref().map_or(0, |engine| engine.view().unreadable_groups())
    }
}

fn tell(
    engine: &mut Engine,
    position: usize,
    name: &GroupName,
    record: Option<Readable<GroupRecord>>,
    revision: Revision,
) {
    match record {
        Some(Ok(record)) => engine.record(position, &record, revision),
        Some(Err(error)) => {
            let key = group_key(name).map(|key| key.to_string()).unwrap_or_default();
            if engine.unreadable_record(position, &key, revision) {
                tracing::error!(
                    key, %error,
                    "the record of a group cannot be read, so the group is stopped; was it written by a newer release?"
                );
            }
        }
        None => engine.no_record(position, revision),
    }
}
