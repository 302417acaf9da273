//! Host records as they change: from the watch, from this server's own writes, and from operators.

use std::sync::Arc;

use refit_backend::Revision;
use refit_rollout::{HostFacts, Plan};
use refit_types::{HostId, HostRecord};

use super::Owner;
use crate::fleet::host_records::{Applied, HostEvent, HostRead, UnreadableHost};
use crate::fleet::host_write::HostState;
use crate::fleet::view::lost_since;
use crate::fleet::watcher::WatchMessage;

impl Owner {
    pub(super) fn take_watch(&mut self, message: WatchMessage) {
        match message {
            WatchMessage::Loaded(records, since) => {
                let changes = self.records.counters.changes + 1;
                self.records = *records;
                self.records.counters.changes = changes;
                self.is_loaded = true;
                // Not a maximum: the revision of a store that was restored from a backup is lower.
                self.applied = since;
                self.unpublished.is_dirty = true;
                self.start_rebuild();
            }
            WatchMessage::Changes { hosts, others, applied } => {
                for HostEvent { host, revision, read } in hosts {
                    match read {
                        Some(HostRead::Record(host_record)) => self.set_host(host, host_record, revision),
                        Some(HostRead::Unreadable(why)) => self.set_unreadable(host, why, revision),
                        None => self.remove_host(host, revision),
                    }
                }
                self.applied = self.applied.max(applied);
                if let Some(engine) = &mut self.engine {
                    engine.applied(self.applied);
                }
                if !others.is_empty() {
                    self.take_changes(others);
                }
            }
        }
    }

    pub(super) fn take_host_state(&mut self, host: HostId, state: HostState) {
        match state {
            HostState::Known(known) => self.set_host(host, known.value, known.revision),
            HostState::Unreadable(why) => self.set_unreadable(host, why.value, why.revision),
            HostState::Removed(at) => self.remove_host(host, at),
        }
    }

    pub(super) fn set_host(&mut self, host: HostId, host_record: Arc<HostRecord>, revision: Revision) {
        let Applied::Changed { before } = self.records.set(host, host_record.clone(), revision) else {
            return;
        };
        // The deferred heartbeat is passed to the engine again, on top of this record.
        if let Some(deferred) = self.deferred.get_mut(&host) {
            deferred.told = None;
        }
        let has_news = before.is_some_and(|before| before.upgrade != host_record.upgrade);
        if let Some(connection) = self.connections.get(host).filter(|_| has_news) {
            self.unpublished.to_wake.push(connection.clone());
        }
        self.host_changed(host);
    }

    fn set_unreadable(&mut self, host: HostId, why: Arc<UnreadableHost>, revision: Revision) {
        if let Applied::Changed { .. } = self.records.set_unreadable(host, why, revision) {
            self.forget_deferred(host);
            self.host_changed(host);
        }
    }

    fn remove_host(&mut self, host: HostId, at: Revision) {
        if let Applied::Changed { .. } = self.records.remove(host, at) {
            self.forget_deferred(host);
            self.host_changed(host);
        }
    }

    /// Passes a host's current record to the engine, and to the one that is being built.
    pub(super) fn host_changed(&mut self, host: HostId) {
        self.unpublished.is_dirty = true;
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.changed.insert(host);
        }
        if let Some(mut engine) = self.engine.take() {
            self.tell_engine(&mut engine, host);
            self.engine = Some(engine);
        }
    }

    /// Passes a host's current record to an engine.
    pub(super) fn tell_engine(&self, engine: &mut refit_rollout::Engine, host: HostId) {
        if let Some(unreadable) = self.records.unreadable.get(&host) {
            let group = unreadable.value.group.as_ref();
            let group = group.and_then(|group| engine.plan().position(group.as_str()));
            engine.unreadable_host(host, group, &unreadable.value.key);
            return;
        }
        match self.records.hosts.get(host) {
            Some(known) => {
                let facts = self.facts(engine.plan(), &known.value);
                engine.host(&facts, known.revision);
            }
            None => engine.forget(host),
        }
    }

    /// The facts of a host for the engine.
    pub(super) fn facts(&self, plan: &Plan, host_record: &HostRecord) -> HostFacts {
        HostFacts::of(plan, host_record, lost_since(&self.snapshot, &self.deaths, host_record))
    }
}
