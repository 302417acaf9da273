//! Waiting for a condition with a deadline. Tests poll with it and never sleep for a fixed time.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

pub(crate) const POLL_EVERY: Duration = Duration::from_millis(20);

/// Waits until the condition holds, and panics when it does not within the bound: tests wait for
/// what they need, never for a time.
pub async fn eventually<F: Future<Output = bool>>(what: &str, within: Duration, holds: impl FnMut() -> F) {
    until_seen(what, within, holds, |holds| *holds).await;
}

/// Polls until the observed value is good and returns it; panics with the last value after the deadline.
pub async fn until_seen<T: Debug, F: Future<Output = T>>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> F,
    is_good: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + within;
    loop {
        let seen = look().await;
        if is_good(&seen) {
            return seen;
        }
        assert!(Instant::now() < end, "{what}: not within {within:?}; seen last: {seen:#?}");
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// The hour of the day in UTC that is farthest away: a window that opens then and lasts the whole day does not close
/// while a test runs.
pub fn far_hour() -> u64 {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().expect("a clock that is right");
    (since_1970.as_secs() / 3600 + 12) % 24
}
