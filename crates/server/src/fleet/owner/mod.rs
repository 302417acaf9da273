//! The one task that owns the fleet's state: host records, the snapshot of the store, and the engine. It takes
//! messages, never waits for the store, and publishes what it knows as an immutable view. Whatever takes long runs
//! beside it and comes back as a message.

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
use super::{Heard, Parts};
use crate::events::Events;
use crate::metrics::Metrics;
use decisions::Deciding;
use heartbeats::{Deferred, HostQueue};
use messages::BesideMessage;
pub(crate) use messages::{HeartbeatMessage, Inbox, OperatorMessage, Outbox, Tick, channels};
use snapshots::{Liveness, Rebuild};

/// How often a view is published at most: readers lag by this, and a burst of changes is copied once.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);
/// Messages of each kind that one turn takes, so that no kind keeps the others waiting for long.
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
    /// When the store was last heard.
    heard: Option<Instant>,
    /// When what it said was taken in: what was asked after that cannot be of an earlier moment of the same store.
    read_at: Option<Instant>,
    /// Since when it has been heard without a pause.
    reachable_since: Timestamp,
    /// Every change of the store up to here is known.
    applied: Revision,

    /// Hosts whose records are being written, with what waits for that.
    busy: HashMap<HostId, HostQueue>,
    host_writes: usize,
    deferred: HashMap<HostId, Deferred>,
    deciding: Deciding,
    rebuild: Option<Rebuild>,
    /// Tells engines that are being made apart.
    generation: u64,
    liveness: VecDeque<Liveness>,

    unpublished: Unpublished,
    /// The view before, which requests may still be looking at.
    previous: Option<Arc<FleetView>>,
}

/// What becomes visible with the next view.
#[derive(Default)]
struct Unpublished {
    is_dirty: bool,
    /// An operator waits: publish at once.
    is_urgent: bool,
    last: Option<Instant>,
    /// Told once the view shows what they did.
    replies: Vec<(oneshot::Sender<refit_backend::Result<Heard>>, refit_backend::Result<Heard>)>,
    acknowledgements: Vec<oneshot::Sender<()>>,
    /// The same, once there is an engine for what operators said.
    engine_acknowledgements: Vec<oneshot::Sender<()>>,
    /// Streams of hosts that have something to learn from the view.
    to_wake: Vec<Arc<Connection>>,
    /// Whether any host may have something to learn.
    wake_all: bool,
}

impl Owner {
    pub(crate) fn new(parts: Parts, view: Arc<ArcSwap<FleetView>>, inbox: Inbox) -> Self {
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
            heard: None,
            read_at: None,
            reachable_since: Timestamp::UNIX_EPOCH,
            applied: Revision::default(),
            busy: HashMap::new(),
            host_writes: 0,
            deferred: HashMap::new(),
            deciding: Deciding::default(),
            rebuild: None,
            generation: 0,
            liveness: VecDeque::new(),
            unpublished: Unpublished::default(),
            previous: None,
        }
    }

    /// Owns the state until the server stops. Best on a thread of its own: a burst of changes then takes no time from
    /// those who answer.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let watcher = Watcher {
            backend: self.backend.clone(),
            owner: self.inbox.watch_sender.clone(),
            reload: self.reload.clone(),
        };
        let watching = tokio::spawn(watcher.run(stop.clone()));
        while self.turn(&mut stop).await {}
        // Whoever still waits for an answer is told that there is none; commits that are under way end by themselves.
        let _ = watching.await;
    }

    /// Waits until there is something to do, and does some of everything, the most urgent first; whether to go on.
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
        publish.unwrap_or(Duration::MAX).min(self.deciding.pause())
    }

    fn take_operator(&mut self, message: OperatorMessage) {
        match message {
            OperatorMessage::Reading { reading, asked, is_change, done } => {
                self.take_reading(*reading, asked);
                if is_change {
                    self.deciding.now();
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
            true => self.deciding.now(),
            false => self.deciding.go_on(),
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

    /// Whether somebody waits for the next view who is not to wait for its time.
    fn is_urgent(&self) -> bool {
        let has_waiting = !self.unpublished.engine_acknowledgements.is_empty() && self.rebuild.is_none();
        self.unpublished.is_urgent || has_waiting
    }

    /// Makes what is known visible, at most every few milliseconds. An operator whose epoch is still being made
    /// ready goes on waiting.
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
            advertised: self.advertised.clone(),
            deaths: self.deaths.clone(),
            heard: self.heard,
            is_loaded: self.is_loaded,
        });
        // Whoever lets go of a view last frees what no other has: that is not to be a request that is being answered.
        self.previous = Some(self.view.swap(view.clone()));
        self.metrics.unreadable_hosts(self.records.unreadable.len());
        self.metrics.unreadable_groups(self.unreadable_groups());
        self.inbox
            .is_loaded
            .send_if_modified(|known| std::mem::replace(known, self.is_loaded) != self.is_loaded);
        let waits = self.rebuild.is_some();
        let unpublished = std::mem::take(&mut self.unpublished);
        self.unpublished.last = Some(Instant::now());
        for (reply, heard) in unpublished.replies {
            // Whoever hung up needs no answer.
            let _ = reply.send(heard);
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
            // As many hosts as this server hears are looked at: not here.
            tokio::task::spawn_blocking(move || wake_due(&view, now));
        }
    }
}

/// Tells the streams of hosts whose upgrade is due.
fn wake_due(view: &FleetView, now: Timestamp) {
    for (host, connection) in view.connections.iter() {
        if view.due_attempt(host, now).is_some() {
            connection.news.notify_one();
        }
    }
}
