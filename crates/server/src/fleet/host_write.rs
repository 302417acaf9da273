//! Writes one host's record with compare-and-swap, in a task of its own: the owner of the fleet's state never waits for
//! the store.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Backoff, Error, Expect, Result, Revision, SharedBackend, Transaction};
use refit_types::{HostId, HostRecord};
use uuid::Uuid;

use super::host_records::{self, HostRead, UnreadableHost};
use super::record::{Heartbeat, after_departure, after_heartbeat};
use super::store_snapshot::{Versioned, encoded};

/// Time limit and first pause of a write that conflicts with others.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// An event of a host that may change its record.
#[derive(Debug, Clone)]
pub(crate) enum HostChange {
    /// It reported.
    Heartbeat(Box<Heartbeat>),
    /// The stream of that session ended.
    Departure(Uuid),
    /// None: only read its record again.
    Nothing,
}

/// A host's state in the store after a write.
#[derive(Debug, Clone)]
pub(crate) enum HostState {
    Known(Versioned<Arc<HostRecord>>),
    Unreadable(Versioned<Arc<UnreadableHost>>),
    /// It was removed, as of that revision.
    Removed(Revision),
}

impl HostChange {
    /// The record after it, if it must be written.
    pub(crate) fn apply(&self, known: &HostRecord, server: &str, now: Timestamp) -> Option<HostRecord> {
        match self {
            Self::Heartbeat(heartbeat) => after_heartbeat(known, heartbeat, server, now),
            Self::Departure(session) => after_departure(known, *session, server, now),
            Self::Nothing => None,
        }
    }
}

/// Applies the change to the record and writes it, with retry on conflict.
pub(crate) async fn write_host(
    backend: SharedBackend,
    server: Arc<str>,
    now: fn() -> Timestamp,
    host: HostId,
    mut known: Option<Versioned<Arc<HostRecord>>>,
    change: HostChange,
) -> Result<HostState> {
    let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
    loop {
        let present = match known {
            Some(known) => known,
            None => match read_host(&backend, host).await? {
                HostState::Known(known) => known,
                other => return Ok(other),
            },
        };
        let Some(changed) = change.apply(&present.value, &server, now()) else {
            return Ok(HostState::Known(present));
        };
        let key = host_records::key(host)?;
        let transaction = Transaction::new().expect(&key, Expect::Revision(present.revision));
        match backend.transact(transaction.put(&key, encoded(&changed)?)).await {
            Ok(revision) => return Ok(HostState::Known(Versioned { value: Arc::new(changed), revision })),
            Err(Error::Conflict { .. }) if backoff.pause().await => known = None,
            Err(other) => return Err(other),
        }
    }
}

/// Reads a host's state from the store.
pub(crate) async fn read_host(backend: &SharedBackend, host: HostId) -> Result<HostState> {
    let read = refit_backend::Read::Key(host_records::key(host)?);
    let mut page = backend.read(&[read]).await?.take(0);
    let Some(item) = page.items.pop() else {
        return Ok(HostState::Removed(Revision(page.revision.0 + 1)));
    };
    let revision = item.revision;
    Ok(match HostRead::of(&item) {
        HostRead::Record(value) => HostState::Known(Versioned { value, revision }),
        HostRead::Unreadable(value) => HostState::Unreadable(Versioned { value, revision }),
    })
}
