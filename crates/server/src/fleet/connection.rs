//! A host's open stream of heartbeats, as the rest of the server knows it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use jiff::Timestamp;
use tokio::sync::Notify;

/// A heartbeat stream. An old one may end after a new one has begun, so each has a number.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: u64,
    /// When it was last heard, in microseconds; written by the stream itself at every heartbeat.
    heard_at: AtomicI64,
    /// Whether the last heartbeat is deferred until a decision: the record is behind it.
    is_deferred: AtomicBool,
    /// Notified when there is news for the host.
    pub(crate) news: Notify,
}

impl Connection {
    pub(crate) fn new(stream: u64, now: Timestamp) -> Self {
        let (heard_at, is_deferred) = (AtomicI64::new(now.as_microsecond()), AtomicBool::new(false));
        Self { stream, heard_at, is_deferred, news: Notify::new() }
    }

    /// Records the time of a heartbeat.
    pub(crate) fn record_heartbeat(&self, now: Timestamp) {
        self.heard_at.store(now.as_microsecond(), Ordering::Relaxed);
    }

    /// Sets whether the last heartbeat is deferred.
    pub(crate) fn set_deferred(&self, is_deferred: bool) {
        self.is_deferred.store(is_deferred, Ordering::Release);
    }

    pub(crate) fn is_deferred(&self) -> bool {
        self.is_deferred.load(Ordering::Acquire)
    }

    pub(crate) fn heard_at(&self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.heard_at.load(Ordering::Relaxed)).ok()
    }
}
