//! A host's open stream of heartbeats, as the rest of the server knows it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use jiff::Timestamp;
use tokio::sync::Notify;

/// A stream by which a host is heard. An old one may end after a new one has begun, so each has a number.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: u64,
    /// When it was last heard, in microseconds; written by the stream itself at every heartbeat.
    heard_at: AtomicI64,
    /// Whether what the host said last waits to be stored with a decision: its record is behind it.
    is_deferred: AtomicBool,
    /// Told when there is something to say to the host.
    pub(crate) news: Notify,
}

impl Connection {
    pub(crate) fn new(stream: u64, now: Timestamp) -> Self {
        let (heard_at, is_deferred) = (AtomicI64::new(now.as_microsecond()), AtomicBool::new(false));
        Self { stream, heard_at, is_deferred, news: Notify::new() }
    }

    /// Notes that the host was heard.
    pub(crate) fn heard(&self, now: Timestamp) {
        self.heard_at.store(now.as_microsecond(), Ordering::Relaxed);
    }

    /// Notes whether the host's record is behind what it said.
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
