//! The fleet's state: every host record, the operators' settings, and the rollout engine. One task owns all of it
//! ([`owner`]), receives messages, and publishes a view that everybody else reads without a lock. This is the handle by
//! which the rest of the server reads the view and sends the messages.

mod connection;
mod counters;
mod host_records;
mod host_write;
mod owner;
mod record;
mod store_reading;
mod store_snapshot;
mod view;
mod watcher;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use refit_backend::{Backoff, Error, Expect, Result, Revision, SharedBackend, Transaction};
use refit_types::{AgentRole, HostId, HostRecord, StoredWord, Version};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::Features;
use crate::events::Events;
use crate::find::{Answer, Answers};
use crate::metrics::Metrics;
pub(crate) use connection::Connection;
pub(crate) use host_write::HostState;
pub(crate) use owner::Owner;
use owner::{HeartbeatMessage, Inbox, OperatorMessage, Outbox, Tick};
pub(crate) use record::{Heartbeat, is_forgotten};
pub(crate) use store_reading::{StoreReading, group_key};
use store_snapshot::StoreSnapshot;
pub(crate) use store_snapshot::{Versioned, encoded, plan_key, readable};
pub(crate) use view::FleetView;

/// How long to wait until a server that has just started has loaded its hosts: a million take some seconds.
pub(crate) const LOADED_WITHIN: Duration = Duration::from_secs(10);

/// Time limit and first pause of a join that conflicts with other writes of the same record.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Hosts in one chunk of a walk.
const AT_ONCE: usize = 1000;

/// Reads and changes the fleet's state.
#[derive(Debug)]
pub(crate) struct Fleet {
    backend: SharedBackend,
    server: Arc<str>,
    now: fn() -> Timestamp,
    view: Arc<ArcSwap<FleetView>>,
    outbox: Outbox,
    streams: AtomicU64,
}

/// What the owner depends on.
pub(crate) struct Dependencies {
    pub(crate) backend: SharedBackend,
    pub(crate) events: Arc<Events>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) server: Arc<str>,
    /// The version that is advertised until an operator chooses one.
    pub(crate) own_version: Version,
    pub(crate) features: Features,
    pub(crate) now: fn() -> Timestamp,
}

/// The result of a heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatResult {
    /// The host is known; whether two processes report as it.
    Known {
        /// Whether they do.
        duplicate: bool,
    },
    /// The host was removed from the cluster.
    Removed,
}

/// Why a host could not join.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinRefused {
    /// Another host has that UUID.
    #[error(
        "the host {0} has joined already: it can join again only with its own certificate, or after \
         `refitctl nodes rm {0}`"
    )]
    Registered(HostId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Fleet {
    /// The handle, and the owner, which the caller must run.
    pub(crate) fn new(parts: Dependencies) -> (Arc<Self>, Owner) {
        let (outbox, inbox): (Outbox, Inbox) = owner::channels();
        let advertised = parts.own_version.to_string().into();
        let snapshot = Arc::new(StoreSnapshot::empty(parts.features));
        let first = FleetView { advertised, snapshot, ..FleetView::default() };
        let view = Arc::new(ArcSwap::from_pointee(first));
        let fleet = Self {
            backend: parts.backend.clone(),
            server: parts.server.clone(),
            now: parts.now,
            view: view.clone(),
            outbox,
            streams: AtomicU64::new(0),
        };
        (Arc::new(fleet), Owner::new(parts, view, inbox))
    }

    /// The current view.
    pub(crate) fn view(&self) -> Arc<FleetView> {
        self.view.load_full()
    }

    /// Reads the current view without taking a reference count: cheap enough for every heartbeat.
    pub(crate) fn peek<T>(&self, read: impl FnOnce(&FleetView) -> T) -> T {
        read(&self.view.load())
    }

    /// The time, rounded to the engine's precision.
    pub(crate) fn clock(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    /// The attempt for which the agent of that process should wake its updater now.
    pub(crate) fn hint(&self, host: HostId, session: Uuid) -> Option<u64> {
        self.peek(|view| view.hint(host, session, self.clock()))
    }

    /// The host's record in the current view, with its revision.
    pub(crate) fn known(&self, host: HostId) -> Option<(Arc<HostRecord>, Revision)> {
        self.peek(|view| view.known(host))
    }

    /// The host's state in the store, for callers that are about to change it.
    pub(crate) async fn stored(&self, host: HostId) -> Result<HostState> {
        host_write::read_host(&self.backend, host).await
    }

    /// Where a host's record is stored.
    pub(crate) fn key(host: HostId) -> Result<refit_backend::Key> {
        host_records::key(host)
    }

    /// Whether the host belongs to the fleet.
    pub(crate) async fn knows(&self, host: HostId) -> Result<bool> {
        Ok(!matches!(self.stored(host).await?, HostState::Removed(_)))
    }

    /// Adds a host. One that has reported before must prove to be the same by its certificate.
    pub(crate) async fn join(
        &self,
        host: HostId,
        hostname: &str,
        roles: &[AgentRole],
        proven: bool,
    ) -> Result<(), JoinRefused> {
        let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let (expect, host_record) = match self.stored(host).await? {
                HostState::Removed(_) => {
                    (Expect::Absent, HostRecord::joined(host, hostname, roles.to_vec(), (self.now)()))
                }
                HostState::Known(known) if proven || known.value.report.is_none() => {
                    let mut host_record = HostRecord::clone(&known.value);
                    host_record.hostname = hostname.into();
                    host_record.roles.extend(roles.iter().copied().map(StoredWord::Known));
                    host_record.roles.sort();
                    host_record.roles.dedup();
                    (Expect::Revision(known.revision), host_record)
                }
                HostState::Known(_) => return Err(JoinRefused::Registered(host)),
                HostState::Unreadable(why) => return Err(unreadable(&why.value.key).into()),
            };
            let key = host_records::key(host)?;
            let transaction = Transaction::new().expect(&key, expect).put(&key, encoded(&host_record)?);
            match self.backend.transact(transaction).await {
                Err(Error::Conflict { .. }) if backoff.pause().await => {}
                Err(error) => return Err(error.into()),
                Ok(revision) => {
                    let known = Versioned { value: Arc::new(host_record), revision };
                    return Ok(self.tell_host(host, HostState::Known(known)).await?);
                }
            }
        }
    }

    /// A stream of heartbeats that begins, told apart from all others.
    pub(crate) fn connect(&self) -> Arc<Connection> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        Arc::new(Connection::new(stream, (self.now)()))
    }

    /// Records a heartbeat of a stream. A heartbeat without news is answered here and never reaches the owner.
    pub(crate) async fn heartbeat(
        &self,
        host: HostId,
        connection: &Arc<Connection>,
        heartbeat: Heartbeat,
    ) -> Result<HeartbeatResult> {
        let now = (self.now)();
        connection.record_heartbeat(now);
        {
            let view = self.view.load();
            let is_registered =
                view.connections.get(host).is_some_and(|known| known.stream == connection.stream);
            let is_current = is_registered && !connection.is_deferred();
            if let Some(known) = view.hosts.get(host).filter(|_| is_current)
                && !view.unreadable.contains_key(&host)
                && record::after_heartbeat(&known.value, &heartbeat, &self.server, now).is_none()
            {
                return Ok(HeartbeatResult::Known { duplicate: known.value.duplicate_at.is_some() });
            }
        }
        let (reply, answered) = oneshot::channel();
        let (connection, heartbeat) = (connection.clone(), Box::new(heartbeat));
        let message = HeartbeatMessage::Heartbeat { host, connection, heartbeat, reply };
        self.outbox.heartbeats.send(message).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }

    /// Records that a stream of that session has ended, unless the host is connected by another one.
    pub(crate) async fn disconnected(&self, host: HostId, stream: Option<u64>, session: Uuid) {
        let message = HeartbeatMessage::Disconnected { host, stream, session };
        // Sending fails only when the server stops, and then its hosts count as disconnected anyway.
        let _ = self.outbox.heartbeats.send(message).await;
    }

    /// Passes a reading of the store to the owner, and waits until it is published. After an operator's change the
    /// engine decides at once.
    pub(crate) async fn tell_reading(
        &self,
        reading: StoreReading,
        asked: Instant,
        is_change: bool,
    ) -> Result<()> {
        let reading = Box::new(reading);
        self.tell(|done| OperatorMessage::Reading { reading, asked, is_change, done }).await
    }

    /// Passes a host's new state to the owner, and waits until it is published.
    pub(crate) async fn tell_host(&self, host: HostId, state: HostState) -> Result<()> {
        self.tell(|done| OperatorMessage::Host { host, state, done }).await
    }

    async fn tell(&self, message: impl FnOnce(oneshot::Sender<()>) -> OperatorMessage) -> Result<()> {
        let (done, published) = oneshot::channel();
        self.outbox.operator.send(message(done)).await.map_err(|_| Error::Closed)?;
        published.await.map_err(|_| Error::Closed)
    }

    /// Passes a periodic reading of the store, or one that the owner requested, to the owner.
    pub(crate) async fn tick(&self, reading: StoreReading, asked: Instant, is_regular: bool) {
        // Sending fails only when the server stops.
        let _ = self.outbox.ticks.send(Tick { reading: Box::new(reading), is_regular, asked }).await;
    }

    /// Waits until the owner requests a reading of the store ahead of time.
    pub(crate) async fn wants_poll(&self) {
        self.outbox.poll.notified().await;
    }

    /// Computes something over all hosts on a blocking thread, away from the threads that serve requests.
    pub(crate) async fn scan_view<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FleetView) -> T + Send + 'static,
    ) -> Result<T> {
        let view = self.view();
        let worked = tokio::task::spawn_blocking(move || work(&view)).await;
        worked.map_err(|error| Error::Invalid(format!("the scan of the fleet failed: {error}")))
    }

    /// Passes the hosts after `after` to `visit`, in the order of their UUIDs and in chunks, until it breaks. All are
    /// from one view.
    pub(crate) fn walk(
        &self,
        after: Option<HostId>,
        mut visit: impl FnMut(&[&Arc<HostRecord>]) -> ControlFlow<()>,
    ) {
        let view = self.view();
        let mut hosts = view.hosts.iter_after(after).map(|(_, known)| &known.value);
        loop {
            let some: Vec<&Arc<HostRecord>> = hosts.by_ref().take(AT_ONCE).collect();
            if some.is_empty() || visit(&some).is_break() {
                return;
            }
        }
    }

    /// The time of the host's last heartbeat, as precisely as this server knows it.
    pub(crate) fn last_seen(&self, host_record: &HostRecord) -> Timestamp {
        self.peek(|view| view.last_seen(host_record))
    }

    /// How many hosts run which version.
    pub(crate) fn versions(&self) -> BTreeMap<Option<Version>, u64> {
        self.peek(|view| BTreeMap::clone(&view.counters.versions))
    }

    /// Increases whenever a host joins, leaves, or reports something new.
    pub(crate) fn changes(&self) -> u64 {
        self.peek(|view| view.counters.changes)
    }

    /// Waits until every record was read once; false if that takes longer.
    pub(crate) async fn until_loaded(&self, within: Duration) -> bool {
        let mut is_loaded = self.outbox.is_loaded.clone();
        let loaded = is_loaded.wait_for(|is_loaded| *is_loaded);
        tokio::time::timeout(within, loaded).await.is_ok_and(|loaded| loaded.is_ok())
    }

    /// Whether every record was read once.
    pub(crate) fn is_loaded(&self) -> bool {
        self.peek(|view| view.is_loaded)
    }
}

impl Answers for Fleet {
    fn answer(&self, host: Option<HostId>) -> Answer {
        self.peek(|view| view.answer(host, self.clock()))
    }
}

/// The error for a record that this server cannot read and must not overwrite.
pub(crate) fn unreadable(key: &str) -> Error {
    Error::Invalid(format!(
        "{key} cannot be read by this server; was it written by a newer release? Ask a server of that release"
    ))
}

#[cfg(test)]
pub(crate) mod tests;
