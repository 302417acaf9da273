//! Changes of the operators' settings, the epoch and the live servers, from readings and from the watch, and what they
//! mean for the engine. A new epoch needs a new engine, which another thread builds from the whole fleet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use refit_backend::Revision;
use refit_rollout::{Engine, HostFacts, HostMap, Plan};
use refit_types::{HostId, HostRecord};

use super::{BesideMessage, Owner};
use crate::fleet::StoreReading;
use crate::fleet::host_records::UnreadableHost;
use crate::fleet::store_reading::StoreChange;
use crate::fleet::store_snapshot::{StoreSnapshot, Versioned};
use crate::fleet::view::{KNOWS_FOR, lost_since};

/// Servers whose end is remembered, because their hosts were lost with them. Hosts soon move to another server.
const MAX_DEATHS: usize = 100;
/// Hosts of a started or stopped server that one turn processes.
const LIVENESS_A_TURN: usize = 500;

/// An engine that is being built from the whole fleet.
#[derive(Debug)]
pub(super) struct Rebuild {
    generation: u64,
    /// Hosts that have changed since the build began.
    pub(super) changed: HashSet<HostId>,
}

/// The hosts of a started or stopped server, after the last one that was processed.
#[derive(Debug)]
pub(super) struct Liveness {
    server: Box<str>,
    after: Option<HostId>,
}

impl Owner {
    /// Applies a reading of the store.
    pub(super) fn take_reading(&mut self, reading: StoreReading, asked: Instant) {
        let was_certain = self
            .last_store_contact
            .is_some_and(|contact| asked.saturating_duration_since(contact) < KNOWS_FOR);
        let (before, as_of) = (self.snapshot.clone(), reading.snapshot.as_of);
        self.last_store_contact = self.last_store_contact.max(Some(asked));
        self.unpublished.is_dirty = true;
        let is_earlier = as_of < before.as_of;
        let is_overtaken = is_earlier && self.read_at.is_some_and(|read_at| asked <= read_at);
        if is_overtaken {
            return;
        }
        self.read_at = Some(Instant::now());
        if was_certain && !is_earlier {
            Arc::make_mut(&mut self.snapshot).replace_by(reading.snapshot);
        } else {
            if is_earlier {
                // The store was restored from a backup and its revisions start again from there: everything that was read
                // before is invalid.
                self.engine = None;
                self.groups.clear();
                self.is_loaded = false;
                self.rebuild = None;
                self.reload.notify_one();
            }
            self.snapshot = Arc::new(reading.snapshot);
            self.reachable_since = self.clock();
            if let Some(engine) = &mut self.engine {
                engine.reachable_since(self.reachable_since);
            }
        }
        self.take_groups(reading.groups, as_of);
        self.snapshot_changed(&before);
    }

    /// Applies changes from the watch.
    pub(super) fn take_changes(&mut self, changes: Vec<(StoreChange, Revision)>) {
        let before = self.snapshot.clone();
        for (change, revision) in changes {
            match change {
                StoreChange::Snapshot(change) => Arc::make_mut(&mut self.snapshot).apply(*change, revision),
                StoreChange::Group(name, record) => {
                    self.set_group(name, record.map(|record| record.value), revision);
                }
            }
        }
        self.unpublished.is_dirty = true;
        self.snapshot_changed(&before);
    }

    fn snapshot_changed(&mut self, before: &StoreSnapshot) {
        self.servers_changed(before);
        let snapshot = self.snapshot.clone();
        if let Some(chosen) = snapshot.chosen() {
            let chosen = chosen.agent_version.to_string();
            if *self.advertised != *chosen {
                self.advertised = chosen.into();
            }
        } else if snapshot.version.is_none() {
            self.advertised = self.own_version.clone();
        }
        if let Some(why) = snapshot.unusable().filter(|why| before.unusable().as_ref() != Some(why)) {
            tracing::error!(why, "this server tells no host to upgrade");
        }
        let said = |snapshot: &StoreSnapshot| {
            [
                snapshot.config.as_ref().map(|stored| stored.revision),
                snapshot.version.as_ref().map(|stored| stored.revision),
                snapshot.plan.as_ref().map(|stored| stored.revision),
            ]
        };
        if said(before) != said(&snapshot) || (self.engine.is_none() && self.rebuild.is_none()) {
            self.plan_changed();
        }
    }

    /// Queues the hosts of started and stopped servers, to be processed in chunks.
    fn servers_changed(&mut self, before: &StoreSnapshot) {
        let (was, is) = (&before.servers, &self.snapshot.servers);
        let gone: Vec<Box<str>> = was.keys().filter(|server| !is.contains_key(*server)).cloned().collect();
        let came: Vec<Box<str>> = is.keys().filter(|server| !was.contains_key(*server)).cloned().collect();
        if gone.is_empty() && came.is_empty() {
            return;
        }
        let now = self.clock();
        let deaths = Arc::make_mut(&mut self.deaths);
        for server in &gone {
            if deaths.len() >= MAX_DEATHS {
                let oldest = deaths.iter().min_by_key(|(_, at)| **at).map(|(server, _)| server.clone());
                oldest.map(|server| deaths.remove(&server));
            }
            deaths.insert(server.clone(), now);
        }
        for server in &came {
            deaths.remove(server);
        }
        let changed = gone.into_iter().chain(came);
        self.liveness.extend(changed.map(|server| Liveness { server, after: None }));
    }

    /// Passes some hosts of started or stopped servers to the engine.
    pub(super) fn judge_liveness(&mut self) {
        let Some(Liveness { server, after }) = self.liveness.pop_front() else { return };
        let hosts = self.records.by_server.after(&server, after, LIVENESS_A_TURN);
        hosts.iter().for_each(|host| self.host_changed(*host));
        if hosts.len() == LIVENESS_A_TURN {
            self.liveness.push_front(Liveness { server, after: hosts.last().copied() });
        }
    }

    /// Follows the operators' current settings: replans the same epoch, builds an engine for another, or drops it.
    fn plan_changed(&mut self) {
        let Some(plan) = self.snapshot.current_plan().filter(|_| self.is_loaded) else {
            self.drop_engine();
            self.rebuild = None;
            return;
        };
        match &mut self.engine {
            Some(engine) if engine.plan().epoch == plan.epoch && self.rebuild.is_none() => {
                if *engine.plan() != plan {
                    engine.replan(plan);
                }
            }
            _ => self.start_rebuild(),
        }
    }

    /// Builds an engine from the whole fleet on a blocking thread.
    pub(super) fn start_rebuild(&mut self) {
        let Some(plan) = self.snapshot.current_plan().filter(|_| self.is_loaded) else {
            self.drop_engine();
            self.rebuild = None;
            return;
        };
        if self.engine.as_ref().is_some_and(|engine| engine.plan().epoch != plan.epoch) {
            self.drop_engine();
        }
        self.generation += 1;
        let generation = self.generation;
        self.rebuild = Some(Rebuild { generation, changed: HashSet::new() });
        let source = EngineSource {
            plan,
            hosts: self.records.hosts.clone(),
            unreadable: self.records.unreadable.clone(),
            snapshot: self.snapshot.clone(),
            deaths: self.deaths.clone(),
            reachable_since: self.reachable_since,
        };
        let done = self.inbox.beside_sender.clone();
        tokio::task::spawn_blocking(move || {
            let engine = Box::new(source.build());
            // Without an owner the server is stopping.
            let _ = done.blocking_send(BesideMessage::Rebuilt { engine, generation });
        });
    }

    /// Installs a new engine after applying what has changed since its build began.
    pub(super) fn rebuilt(&mut self, mut engine: Engine, generation: u64) {
        let is_current = |rebuild: &mut Rebuild| rebuild.generation == generation;
        let Some(rebuild) = self.rebuild.take_if(is_current) else { return };
        let Some(plan) = self.snapshot.current_plan() else { return self.drop_engine() };
        if plan.epoch != engine.plan().epoch {
            return self.start_rebuild();
        }
        if *engine.plan() != plan {
            engine.replan(plan);
        }
        self.hand_groups_to(&mut engine);
        engine.reachable_since(self.reachable_since);
        engine.applied(self.applied);
        for host in rebuild.changed {
            self.tell_engine(&mut engine, host);
        }
        self.engine = Some(engine);
        self.deferred.values_mut().for_each(|deferred| deferred.told = None);
        self.unpublished.is_dirty = true;
        self.unpublished.is_urgent = true;
        self.unpublished.wake_all = true;
        self.decision_state.start();
    }
}

/// The inputs of a new engine.
struct EngineSource {
    plan: Plan,
    hosts: HostMap<Versioned<Arc<HostRecord>>>,
    unreadable: Arc<BTreeMap<HostId, Versioned<Arc<UnreadableHost>>>>,
    snapshot: Arc<StoreSnapshot>,
    deaths: Arc<HashMap<Box<str>, Timestamp>>,
    reachable_since: Timestamp,
}

impl EngineSource {
    fn build(self) -> Engine {
        let mut engine = Engine::new(self.plan, self.reachable_since);
        for (_, known) in self.hosts.iter() {
            let lost_since = lost_since(&self.snapshot, &self.deaths, &known.value);
            let facts = HostFacts::of(engine.plan(), &known.value, lost_since);
            engine.host(&facts, known.revision);
        }
        for (host, unreadable) in self.unreadable.iter() {
            let group = unreadable.value.group.as_ref();
            let group = group.and_then(|group| engine.plan().position(group.as_str()));
            engine.unreadable_host(*host, group, &unreadable.value.key);
        }
        engine
    }
}
