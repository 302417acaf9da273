//! The task that owns the fleet's state: host records, the snapshot of the store, and the engine. It processes
//! messages, never waits for the store, and publishes immutable views. Slow work runs in other tasks and comes back as
//! a message.

mod decisions;
mod groups;
mod heartbeats;
mod hosts;
mod messages;
mod snapshots;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use refit_backend::{Revision, SharedBackend};
use refit_rollout::{Engine, HostMap};
use refit_types::HostId;
use tokio::sync::{Notify, oneshot, watch};

use super::connection::Connection;
use super::host_records::HostRecords;
use super::store_reading::GroupRecords;
use super::store_snapshot::StoreSnapshot;
use super::view::FleetView;
use super::watcher::Watcher;
use super::{Dependencies, HeartbeatResult};
use crate::events::Events;
use crate::metrics::Metrics;
use decisions::DecisionState;
use heartbeats::{Deferred, HostQueue};
use messages::BesideMessage;
pub(crate) use messages::{HeartbeatMessage, Inbox, OperatorMessage, Outbox, Tick, channels};
use snapshots::{Liveness, Rebuild};

/// How often a view is published at most: readers lag by this, and a burst of changes is copied once.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);
/// Messages of each kind that one turn processes, so that no kind starves the others.
const WATCH_A_TURN: usize = 16;
const BESIDE_A_TURN: usize = 1024;
const HEARTBEATS_A_TURN: usize = 256;
/// Host records that are being written at once: as many as a store commits together, and few enough that an
/// operator's change does not queue behind a fleet that reconnects.
const MAX_HOST_WRITES: usize = 512;

/// Owns the fleet's state.
pub(crate) struct Owner {
    backend: SharedBackend,
    events: Arc<Events>,
    metrics: Arc<Metrics>,
    server: Arc<str>,
    own_version: Arc<str>,
    now: fn() -> Timestamp,
    view: Arc<ArcSwap<FleetView>>,
    inbox: Inbox,
    reload: Arc<Notify>,

    records: HostRecords,
    is_loaded: bool,
    connections: HostMap<Arc<Connection>>,
    snapshot: Arc<StoreSnapshot>,
    /// The records of groups, while there is no engine to keep them.
    groups: GroupRecords,
    /// None before everything was read once, while no version is chosen, and while an epoch begins.
    engine: Option<Engine>,
    advertised: Arc<str>,
    deaths: Arc<HashMap<Box<str>, Timestamp>>,
    /// When the store last answered.
    last_store_contact: Option<Instant>,
    /// When the last reading was applied: a reading requested later cannot be older, unless the store was restored.
    read_at: Option<Instant>,
    /// Since when it has answered without interruption.
    reachable_since: Timestamp,
    /// Every change of the store up to here is known.
    applied: Revision,

    /// Hosts whose records are being written, with the work that is queued behind it.
    busy: HashMap<HostId, HostQueue>,
    host_writes: usize,
    deferred: HashMap<HostId, Deferred>,
    decision_state: DecisionState,
    rebuild: Option<Rebuild>,
    /// Identifies the rebuild that is current.
    generation: u64,
    liveness: VecDeque<Liveness>,

    unpublished: Unpublished,
    /// The previous view, which requests may still hold.
    previous: Option<Arc<FleetView>>,
}

/// Changes that become visible with the next view.
#[derive(Default)]
struct Unpublished {
    is_dirty: bool,
    /// An operator waits: publish at once.
    is_urgent: bool,
    last: Option<Instant>,
    /// Sent after the view that contains their change is published.
    replies: Vec<(
        oneshot::Sender<refit_backend::Result<HeartbeatResult>>,
        refit_backend::Result<HeartbeatResult>,
    )>,
    acknowledgements: Vec<oneshot::Sender<()>>,
    /// Sent after that, once there is an engine for the operators' current settings.
    engine_acknowledgements: Vec<oneshot::Sender<()>>,
    /// Streams of hosts that have news in this view.
    to_wake: Vec<Arc<Connection>>,
    /// Whether any host may have news.
    wake_all: bool,
}

impl Owner {
    pub(crate) fn new(parts: Dependencies, view: Arc<ArcSwap<FleetView>>, inbox: Inbox) -> Self {
        let own_version: Arc<str> = parts.own_version.to_string().into();
        Self {
            backend: parts.backend,
            events: parts.events,
            metrics: parts.metrics,
            server: parts.server,
            advertised: own_version.clone(),
            own_version,
            now: parts.now,
            view,
            inbox,
            reload: Arc::default(),
            records: HostRecords::default(),
            is_loaded: false,
            connections: HostMap::default(),
            snapshot: Arc::new(StoreSnapshot::empty(parts.features)),
            groups: GroupRecords::new(),
            engine: None,
            deaths: Arc::default(),
            last_store_contact: None,
            read_at: None,
            reachable_since: Timestamp::UNIX_EPOCH,
            applied: Revision::default(),
            busy: HashMap::new(),
            host_writes: 0,
            deferred: HashMap::new(),
            decision_state: DecisionState::default(),
            rebuild: None,
            generation: 0,
            liveness: VecDeque::new(),
            unpublished: Unpublished::default(),
            previous: None,
        }
    }

    /// Runs until the server stops. Run it on a thread of its own, so that a burst of changes does not delay requests.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let watcher = Watcher {
            backend: self.backend.clone(),
            owner: self.inbox.watch_sender.clone(),
            reload: self.reload.clone(),
        };
        let watching = tokio::spawn(watcher.run(stop.clone()));
        while self.turn(&mut stop).await {}
        // Pending callers get an error because their channels close; commits in progress finish by themselves.
        let _ = watching.await;
    }

    /// Waits for work and processes some of each kind, the most urgent first. Returns whether to continue.
    async fn turn(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        let pause = self.pause();
        let has_room = self.host_writes < MAX_HOST_WRITES;
        let mut heartbeats = Vec::new();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return false,
            Some(message) = self.inbox.operator.recv() => self.take_operator(message),
            Some(message) = self.inbox.watch.recv() => self.take_watch(message),
            Some(message) = self.inbox.beside.recv() => self.take_beside(message),
            Some(tick) = self.inbox.ticks.recv() => self.take_tick(tick),
            count = self.inbox.heartbeats.recv_many(&mut heartbeats, HEARTBEATS_A_TURN), if has_room => {
                if count == 0 {
                    return false;
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
        while let Ok(message) = self.inbox.operator.try_recv() {
            self.take_operator(message);
        }
        for _ in 0..WATCH_A_TURN {
            let Ok(message) = self.inbox.watch.try_recv() else { break };
            self.take_watch(message);
        }
        for _ in 0..BESIDE_A_TURN {
            let Ok(message) = self.inbox.beside.try_recv() else { break };
            self.take_beside(message);
        }
        while let Ok(tick) = self.inbox.ticks.try_recv() {
            self.take_tick(tick);
        }
        while heartbeats.len() < HEARTBEATS_A_TURN && has_room {
            let Ok(message) = self.inbox.heartbeats.try_recv() else { break };
            heartbeats.push(message);
        }
        for message in heartbeats {
            self.take_heartbeat(message);
        }
        self.judge_liveness();
        self.decide();
        self.publish();
        true
    }

    /// How long to wait when no message comes.
    fn pause(&self) -> Duration {
        if !self.liveness.is_empty() || self.is_urgent() {
            return Duration::ZERO;
        }
        let publish = self.unpublished.last.filter(|_| self.unpublished.is_dirty);
        let publish = publish.map(|last| (last + PUBLISH_EVERY).saturating_duration_since(Instant::now()));
        let publish = publish.or(self.unpublished.is_dirty.then_some(Duration::ZERO));
        publish.unwrap_or(Duration::MAX).min(self.decision_state.pause())
    }

    fn take_operator(&mut self, message: OperatorMessage) {
        match message {
            OperatorMessage::Reading { reading, asked, is_change, done } => {
                self.take_reading(*reading, asked);
                if is_change {
                    self.decision_state.start();
                }
                self.unpublished.engine_acknowledgements.push(done);
            }
            OperatorMessage::Host { host, state, done } => {
                self.take_host_state(host, state);
                self.unpublished.acknowledgements.push(done);
            }
        }
        self.unpublished.is_dirty = true;
        self.unpublished.is_urgent = true;
    }

    fn take_tick(&mut self, tick: Tick) {
        self.take_reading(*tick.reading, tick.asked);
        match tick.is_regular {
            true => self.decision_state.start(),
            false => self.decision_state.resume(),
        }
    }

    fn take_beside(&mut self, message: BesideMessage) {
        match message {
            BesideMessage::HostWritten { host, outcome } => self.host_written(host, outcome),
            BesideMessage::Committed { commit, outcome } => self.committed(*commit, outcome),
            BesideMessage::Rebuilt { engine, generation } => self.rebuilt(*engine, generation),
        }
    }

    /// The time, no finer than the engine keeps it.
    fn clock(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    /// Whether a caller needs the next view ahead of its time.
    fn is_urgent(&self) -> bool {
        let has_waiting = !self.unpublished.engine_acknowledgements.is_empty() && self.rebuild.is_none();
        self.unpublished.is_urgent || has_waiting
    }

    /// Publishes a view, at most every few milliseconds. An operator whose epoch still needs an engine keeps waiting.
    fn publish(&mut self) {
        let is_due = self.unpublished.last.is_none_or(|last| last.elapsed() >= PUBLISH_EVERY);
        let may_publish = self.is_urgent() || (self.unpublished.is_dirty && is_due);
        if !may_publish {
            return;
        }
        let view = Arc::new(FleetView {
            hosts: self.records.hosts.clone(),
            unreadable: self.records.unreadable.clone(),
            connections: self.connections.clone(),
            counters: self.records.counters.clone(),
            snapshot: self.snapshot.clone(),
            rollout: self.engine.as_ref().map(|engine| engine.view().clone()),
            stopped: self.stopped_without_engine(),
            advertised: self.advertised.clone(),
            deaths: self.deaths.clone(),
            last_store_contact: self.last_store_contact,
            is_loaded: self.is_loaded,
        });
        // The last holder of a view frees its memory, which takes time: keep it here, so that no request has to.
        self.previous = Some(self.view.swap(view.clone()));
        self.metrics.unreadable_hosts(self.records.unreadable.len());
        self.metrics.unreadable_groups(self.unreadable_groups());
        self.inbox
            .is_loaded
            .send_if_modified(|known| std::mem::replace(known, self.is_loaded) != self.is_loaded);
        let waits = self.rebuild.is_some();
        let unpublished = std::mem::take(&mut self.unpublished);
        self.unpublished.last = Some(Instant::now());
        for (reply, result) in unpublished.replies {
            // The caller may have disconnected.
            let _ = reply.send(result);
        }
        let mut acknowledgements = unpublished.acknowledgements;
        match waits {
            true => self.unpublished.engine_acknowledgements = unpublished.engine_acknowledgements,
            false => acknowledgements.extend(unpublished.engine_acknowledgements),
        }
        for done in acknowledgements {
            let _ = done.send(());
        }
        unpublished.to_wake.iter().for_each(|connection| connection.news.notify_one());
        if unpublished.wake_all {
            let now = self.clock();
            // This visits every connected host, so it runs on another thread.
            tokio::task::spawn_blocking(move || wake_due(&view, now));
        }
    }
}

/// Wakes the streams of hosts whose upgrade is due.
fn wake_due(view: &FleetView, now: Timestamp) {
    for (host, connection) in view.connections.iter() {
        if view.due_attempt(host, now).is_some() {
            connection.news.notify_one();
        }
    }
}
