//! What operators say, the epoch, the records of groups and the servers that live: taken in as it is read or as the
//! watch tells of it, with what that means for the engine. A new epoch means another engine, made from the whole
//! fleet beside the owner.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use refit_backend::Revision;
use refit_rollout::{Engine, HostFacts, HostMap, Plan};
use refit_types::{GroupName, HostId, Instance, Span};

use super::{BesideMessage, Owner};
use crate::fleet::host_records::UnreadableHost;
use crate::fleet::store_snapshot::{SnapshotChange, StoreSnapshot, Versioned, group_key};
use crate::fleet::view::{KNOWS_FOR, lost_since};

/// Servers whose end is remembered. Each has hosts that were lost with it; those move to another soon.
const MAX_DEATHS: usize = 100;
/// Hosts of a server that came or went that one turn looks at.
const LIVENESS_A_TURN: usize = 500;

/// An engine that is being made from the whole fleet.
#[derive(Debug)]
pub(super) struct Rebuild {
    generation: u64,
    /// Hosts that have changed since it was begun.
    pub(super) changed: HashSet<HostId>,
}

/// The hosts of a server that came or went, behind the one that was last looked at.
#[derive(Debug)]
pub(super) struct Liveness {
    server: Box<str>,
    after: Option<HostId>,
}

impl Owner {
    /// Takes in what was read of the store.
    pub(super) fn take_snapshot(&mut self, read: StoreSnapshot, asked: Instant) {
        let was_certain = self.heard.is_some_and(|heard| asked.saturating_duration_since(heard) < KNOWS_FOR);
        let before = self.snapshot.clone();
        if was_certain {
            Arc::make_mut(&mut self.snapshot).replace_by(read);
        } else {
            if read.as_of < before.as_of {
                // A store that was away has come back from a backup, and counts anew from there.
                self.reload.notify_one();
            }
            self.snapshot = Arc::new(read);
            self.reachable_since = self.clock();
            if let Some(engine) = &mut self.engine {
                engine.reachable_since(self.reachable_since);
            }
        }
        self.heard = self.heard.max(Some(asked));
        self.unpublished.is_dirty = true;
        self.snapshot_changed(&before);
    }

    /// Takes in what the watch tells of it.
    pub(super) fn take_changes(&mut self, changes: Vec<(SnapshotChange, Revision)>) {
        let before = self.snapshot.clone();
        let snapshot = Arc::make_mut(&mut self.snapshot);
        for (change, revision) in changes {
            snapshot.apply(change, revision);
        }
        self.unpublished.is_dirty = true;
        self.snapshot_changed(&before);
        self.deciding.go_on();
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
            tracing::error!(why, "nobody is told to upgrade by this server");
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
        if self.rebuild.is_none()
            && let Some(mut engine) = self.engine.take()
        {
            let is_new = |name: &GroupName, revision: Revision| {
                before.groups.get(name).is_none_or(|known| known.revision != revision)
            };
            tell_groups(&mut engine, &snapshot, is_new);
            self.engine = Some(engine);
        }
        let unreadable = snapshot.groups.values().filter(|group| group.value.is_err()).count();
        self.metrics.unreadable_groups(unreadable);
        self.unpublished.wake_all |= open_windows(before) != open_windows(&snapshot);
    }

    /// Hosts of servers that came or went are looked at, some at a time.
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

    /// Tells the engine of some hosts whose server came or went.
    pub(super) fn judge_liveness(&mut self) {
        let Some(Liveness { server, after }) = self.liveness.pop_front() else { return };
        let hosts = self.records.by_server.after(&server, after, LIVENESS_A_TURN);
        hosts.iter().for_each(|host| self.host_changed(*host));
        if hosts.len() == LIVENESS_A_TURN {
            self.liveness.push_front(Liveness { server, after: hosts.last().copied() });
        }
    }

    /// Goes on by what operators say now: in the same epoch, in another, or not at all.
    fn plan_changed(&mut self) {
        let Some(plan) = self.snapshot.current_plan().filter(|_| self.is_loaded) else {
            self.engine = None;
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

    /// Makes an engine from the whole fleet, away from the threads that answer.
    pub(super) fn start_rebuild(&mut self) {
        let Some(plan) = self.snapshot.current_plan().filter(|_| self.is_loaded) else {
            self.engine = None;
            self.rebuild = None;
            return;
        };
        if self.engine.as_ref().is_some_and(|engine| engine.plan().epoch != plan.epoch) {
            self.engine = None;
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

    /// Takes over an engine that was made beside, once it knows what has changed since.
    pub(super) fn rebuilt(&mut self, mut engine: Engine, generation: u64) {
        let is_wanted = |rebuild: &mut Rebuild| rebuild.generation == generation;
        let Some(rebuild) = self.rebuild.take_if(is_wanted) else { return };
        let Some(plan) = self.snapshot.current_plan() else {
            self.engine = None;
            return;
        };
        if plan.epoch != engine.plan().epoch {
            return self.start_rebuild();
        }
        if *engine.plan() != plan {
            engine.replan(plan);
        }
        tell_groups(&mut engine, &self.snapshot, |_, _| true);
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
        self.deciding.now();
    }
}

/// What an engine is made from.
struct EngineSource {
    plan: Plan,
    hosts: HostMap<Versioned<Arc<Instance>>>,
    unreadable: Arc<BTreeMap<HostId, Versioned<Arc<UnreadableHost>>>>,
    snapshot: Arc<StoreSnapshot>,
    deaths: Arc<HashMap<Box<str>, Timestamp>>,
    reachable_since: Timestamp,
}

impl EngineSource {
    fn build(self) -> Engine {
        let mut engine = Engine::new(self.plan, self.reachable_since);
        tell_groups(&mut engine, &self.snapshot, |_, _| true);
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

/// Tells an engine of the records of groups.
fn tell_groups(engine: &mut Engine, snapshot: &StoreSnapshot, is_new: impl Fn(&GroupName, Revision) -> bool) {
    for (name, group) in snapshot.groups.iter().filter(|(name, group)| is_new(name, group.revision)) {
        let Some(position) = engine.plan().position(name.as_str()) else { continue };
        match &group.value {
            Ok(record) => engine.record(position, record, group.revision),
            Err(error) => {
                let key = group_key(name).map(|key| key.to_string()).unwrap_or_default();
                tracing::error!(
                    key,
                    error,
                    "the record of a group cannot be read, so the group is stopped; was it written by a newer release?"
                );
                engine.unreadable_record(position, &key, group.revision);
            }
        }
    }
}

/// Which windows of which groups are open: in these, hosts are told to go.
fn open_windows(snapshot: &StoreSnapshot) -> Vec<(&GroupName, Span)> {
    let open =
        snapshot.groups.iter().filter_map(|(name, group)| Some((name, group.value.as_ref().ok()?.window?)));
    open.collect()
}
