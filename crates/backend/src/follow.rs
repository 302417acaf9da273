//! Following what is stored for as long as a server runs. A watch can end at any time: the store was out of reach, or the
//! watch fell behind. What is followed is then read again and watched from there.

use std::fmt::Display;
use std::time::Duration;

use tokio::sync::watch;

/// How long to wait before the store is asked again: a store that fails is not asked more often by each of its servers.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// Runs `read_and_watch`, which reads what is stored and then watches it, and runs it again whenever it fails; until it
/// returns, or `stop` is true. `what` is named in the log.
pub async fn follow<F, E>(
    what: &'static str,
    mut stop: watch::Receiver<bool>,
    mut read_and_watch: impl FnMut() -> F + Send,
) where
    F: Future<Output = Result<(), E>> + Send,
    E: Display + Send,
{
    loop {
        tokio::select! {
            ended = read_and_watch() => match ended {
                Ok(()) => return,
                Err(error) => tracing::warn!(what, %error, "lost the watch on the store; reading again"),
            },
            _ = stop.wait_for(|stop| *stop) => return,
        }
        tokio::select! {
            () = tokio::time::sleep(RELOAD_PAUSE) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
