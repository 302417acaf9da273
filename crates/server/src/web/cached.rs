//! Caches results that need a walk over the fleet, for a time that depends on how long they took to compute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::response::Refusal;

/// A result is cached for this many times as long as it took to compute: however large the fleet and however many
/// viewers, computing it takes a fiftieth of one core.
const WORTH: u32 = 50;
const LONGEST: Duration = Duration::from_secs(5);

/// The result of a scan of the fleet: computed by one of its callers on a blocking thread, and shared by the others.
#[derive(Debug)]
pub(super) struct Cached<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Send + Sync + 'static> Cached<T> {
    pub(super) async fn get(&self, make: impl FnOnce() -> T + Send + 'static) -> Result<Arc<T>, Refusal> {
        let mut kept = self.0.lock().await;
        if let Some((until, value)) = &*kept
            && Instant::now() < *until
        {
            return Ok(value.clone());
        }
        let began = Instant::now();
        let value = Arc::new(aside(make).await?);
        *kept = Some((Instant::now() + (began.elapsed() * WORTH).min(LONGEST), value.clone()));
        Ok(value)
    }
}

/// Runs slow work on a blocking thread.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "computing a page of the dashboard failed");
        Refusal::Unavailable("This page could not be made.".into())
    })
}
