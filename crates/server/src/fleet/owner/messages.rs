//! What the owner of the fleet's state is told, and by which channels. Each is bounded: who sends too much waits by
//! itself, and nobody else does.

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
use crate::fleet::{Heard, Heartbeat, StoreReading};

/// An operator's change is one message, and operators are few.
const OPERATOR: usize = 64;
/// Batches of the watch that wait here; more wait in the store.
const WATCH: usize = 64;
/// Results of what runs beside the owner: as many as can run.
const BESIDE: usize = 1024;
/// Readings of the store: one is enough, the newest counts.
const TICKS: usize = 1;
/// Heartbeats that say something new. A stream whose heartbeat does not fit waits, and no other does.
const HEARTBEATS: usize = 1024;

/// An operator did something, by this server.
#[derive(Debug)]
pub(crate) enum OperatorMessage {
    /// The store was read, after it or for somebody who wants to see; whether anything was done.
    Reading { reading: Box<StoreReading>, asked: Instant, is_change: bool, done: oneshot::Sender<()> },
    /// A host was added or removed.
    Host { host: HostId, state: HostState, done: oneshot::Sender<()> },
}

/// The store was read because it was time to, or because the owner wanted it.
#[derive(Debug)]
pub(crate) struct Tick {
    pub(crate) reading: Box<StoreReading>,
    /// Whether it was time to.
    pub(crate) is_regular: bool,
    /// When it was asked.
    pub(crate) asked: Instant,
}

/// A host said something new, or fell silent.
#[derive(Debug)]
pub(crate) enum HeartbeatMessage {
    Heartbeat {
        host: HostId,
        connection: Arc<Connection>,
        heartbeat: Box<Heartbeat>,
        reply: oneshot::Sender<Result<Heard>>,
    },
    /// A stream of that session ended; without its number, the record says that the host is heard and it is not.
    Disconnected { host: HostId, stream: Option<u64>, session: Uuid },
}

/// Something that ran beside the owner is done.
#[derive(Debug)]
pub(crate) enum BesideMessage {
    HostWritten { host: HostId, outcome: Result<HostState> },
    Committed { commit: Box<Commit>, outcome: Result<Revision> },
    Rebuilt { engine: Box<Engine>, generation: u64 },
}

/// The senders that others have.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) operator: mpsc::Sender<OperatorMessage>,
    pub(crate) ticks: mpsc::Sender<Tick>,
    pub(crate) heartbeats: mpsc::Sender<HeartbeatMessage>,
    /// Told when the store is to be read before it is time to.
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
    /// Has the store read before it is time to.
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
