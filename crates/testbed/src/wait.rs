use std::time::{Duration, Instant};

pub(crate) const POLL_EVERY: Duration = Duration::from_millis(20);

/// Waits until the condition holds, and panics when it does not within the bound: tests wait for
/// what they need, never for a time.
pub async fn eventually<F: Future<Output = bool>>(
    what: &str,
    within: Duration,
    mut holds: impl FnMut() -> F,
) {
    let end = Instant::now() + within;
    while !holds().await {
        assert!(Instant::now() < end, "{what}: not within {within:?}");
        tokio::time::sleep(POLL_EVERY).await;
    }
}
