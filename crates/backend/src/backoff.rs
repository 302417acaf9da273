//! The retry policy of everything that talks to a store: exponential pauses with jitter, until a time limit.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to go on trying, and how long to wait in between: longer each time, and never in step
/// with others that try the same. All retries against a store go by it.
#[derive(Debug)]
pub struct Backoff {
    end: Instant,
    pause: Duration,
}

impl Backoff {
    /// Tries for so long: for when the other side is away.
    pub fn of(limit: Duration) -> Self {
        Self::starting_with(FIRST_PAUSE, limit)
    }

    /// Tries for so long, at first with shorter pauses: for when others are quicker.
    pub fn starting_with(pause: Duration, limit: Duration) -> Self {
        Self { end: Instant::now() + limit, pause }
    }

    /// What is left of the time.
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
