//! The retry policy of everything that talks to a store: exponential pauses with jitter, until a time limit.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A time limit and the pauses until then: each longer than the last, with jitter so that clients do not retry in
/// step. All retries against a store use it.
#[derive(Debug)]
pub struct Backoff {
    end: Instant,
    pause: Duration,
}

impl Backoff {
    /// Retries for that long: for when the other side does not respond.
    pub fn of(limit: Duration) -> Self {
        Self::starting_with(FIRST_PAUSE, limit)
    }

    /// Retries for that long, with a shorter first pause: for write conflicts.
    pub fn starting_with(pause: Duration, limit: Duration) -> Self {
        Self { end: Instant::now() + limit, pause }
    }

    /// The time left until the limit.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits before the next attempt; false when there is no time for another one.
    pub async fn pause(&mut self) -> bool {
        let pause = self.pause.mul_f64(rand::random_range(0.5..1.0));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if pause >= self.left() {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
