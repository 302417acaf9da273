//! Readiness of this server: whether the store answers, and whether it is draining.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refit_backend::{Key, SharedBackend};
use tokio::sync::watch;

/// A store that has not answered for so long counts as unreachable.
const STALE: Duration = Duration::from_secs(5);
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Whether this server can do its work.
#[derive(Debug, Default)]
pub(crate) struct Health {
    store_answered: Mutex<Option<Instant>>,
    draining: AtomicBool,
}

impl Health {
    pub(crate) fn store_answered(&self) {
        *self.store_answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether to send work here, or why not.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if self.draining.load(Ordering::Relaxed) {
            return Err("stopping".into());
        }
        match *self.store_answered.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(at) if at.elapsed() < STALE => Ok(()),
            Some(at) => Err(format!("the store has not answered for {} s", at.elapsed().as_secs())),
            None => Err("the store has not answered yet".into()),
        }
    }

    /// Probes the store periodically, until the server stops.
    pub(crate) async fn watch_store(
        &self,
        backend: SharedBackend,
        key: Key,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut tick = tokio::time::interval(PROBE_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            match backend.get(&key).await {
                Ok(_) => self.store_answered(),
                Err(error) => tracing::warn!(%error, "the store does not answer"),
            }
        }
    }
}
