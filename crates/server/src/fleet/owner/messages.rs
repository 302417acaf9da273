//! The messages to the owner of the fleet's state, and their channels. Each channel is bounded, so a busy sender waits
//! without delaying the others.

use std::sync::Arc;
use std::time::Instant;

use refit_backend::{Result, Revision};
use refit_rollout::Engine;
use refit_types::HostId;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use uuid::Uuid;

use super::decisions::Commit;
use crate::fleet::connection::Connection;
use crate::fleet::host_write::HostState;
use crate::fleet::watcher::WatchMessage;
use crate::fleet::{Heartbeat, HeartbeatResult, StoreReading};

/// An operator's change is one message, and operators are few.
const OPERATOR: usize = 64;
/// Batches of the watch that wait here; more wait in the store.
const WATCH: usize = 64;
/// Results of the owner's background tasks: as many as can run.
const BESIDE: usize = 1024;
/// Readings of the store: one is enough, the newest counts.
const TICKS: usize = 1;
/// Heartbeats that say something new. A stream whose heartbeat does not fit waits, and no other does.
const HEARTBEATS: usize = 1024;

/// An operator's action on this server.
#[derive(Debug)]
pub(crate) enum OperatorMessage {
    /// A reading of the store, after a change or for a page; `is_change` tells which.
    Reading { reading: Box<StoreReading>, asked: Instant, is_change: bool, done: oneshot::Sender<()> },
    /// A host was added or removed.
    Host { host: HostId, state: HostState, done: oneshot::Sender<()> },
}

/// A periodic reading of the store, or one that the owner requested.
#[derive(Debug)]
pub(crate) struct Tick {
    pub(crate) reading: Box<StoreReading>,
    /// Whether it was periodic.
    pub(crate) is_regular: bool,
    /// When the read was sent.
    pub(crate) asked: Instant,
}

/// A heartbeat with news, or a disconnect.
#[derive(Debug)]
pub(crate) enum HeartbeatMessage {
    Heartbeat {
        host: HostId,
        connection: Arc<Connection>,
        heartbeat: Box<Heartbeat>,
        reply: oneshot::Sender<Result<HeartbeatResult>>,
    },
    /// A stream of that session ended. Without a stream number, the record is stale: it names this server, and the host
    /// is not connected here.
    Disconnected { host: HostId, stream: Option<u64>, session: Uuid },
}

/// The result of a background task of the owner.
#[derive(Debug)]
pub(crate) enum BesideMessage {
    HostWritten { host: HostId, outcome: Result<HostState> },
    Committed { commit: Box<Commit>, outcome: Result<Revision> },
    Rebuilt { engine: Box<Engine>, generation: u64 },
}

/// The senders, for the rest of the server.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) operator: mpsc::Sender<OperatorMessage>,
    pub(crate) ticks: mpsc::Sender<Tick>,
    pub(crate) heartbeats: mpsc::Sender<HeartbeatMessage>,
    /// Notified when the store is to be read ahead of time.
    pub(crate) poll: Arc<Notify>,
    /// Whether every record was read once, and the view shows it.
    pub(crate) is_loaded: watch::Receiver<bool>,
}

/// The receivers, in the order in which they are served, and the senders of what the owner itself starts.
pub(crate) struct Inbox {
    pub(crate) operator: mpsc::Receiver<OperatorMessage>,
    pub(crate) watch: mpsc::Receiver<WatchMessage>,
    pub(crate) beside: mpsc::Receiver<BesideMessage>,
    pub(crate) ticks: mpsc::Receiver<Tick>,
    pub(crate) heartbeats: mpsc::Receiver<HeartbeatMessage>,
    pub(crate) watch_sender: mpsc::Sender<WatchMessage>,
    pub(crate) beside_sender: mpsc::Sender<BesideMessage>,
    /// Requests a reading of the store ahead of time.
    pub(crate) poll: Arc<Notify>,
    pub(crate) is_loaded: watch::Sender<bool>,
}

pub(crate) fn channels() -> (Outbox, Inbox) {
    let (operator_sender, operator) = mpsc::channel(OPERATOR);
    let (watch_sender, watched) = mpsc::channel(WATCH);
    let (beside_sender, beside) = mpsc::channel(BESIDE);
    let (tick_sender, ticks) = mpsc::channel(TICKS);
    let (heartbeat_sender, heartbeats) = mpsc::channel(HEARTBEATS);
    let (poll, loaded): (Arc<Notify>, watch::Sender<bool>) = Default::default();
    let outbox = Outbox {
        operator: operator_sender,
        ticks: tick_sender,
        heartbeats: heartbeat_sender,
        poll: poll.clone(),
        is_loaded: loaded.subscribe(),
    };
    (
        outbox,
        Inbox {
            operator,
            watch: watched,
            beside,
            ticks,
            heartbeats,
            watch_sender,
            beside_sender,
            poll,
            is_loaded: loaded,
        },
    )
}
