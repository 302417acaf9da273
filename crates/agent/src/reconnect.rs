//! When and where to connect next, and when to give up: pure functions of time and chance.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// How the process ends when it has not reached the control plane for too long: `EX_TEMPFAIL`, so that a
/// service manager and a script can tell it from an error of the agent.
pub const EXIT_UNREACHABLE: u8 = 75;

/// How long an agent runs without the control plane by default. Its exit lets the updater act
/// without a maintenance window, which may be what brings it back.
pub const DEFAULT_UNREACHABLE_EXIT: Duration = Duration::from_secs(5 * 60);

/// The shortest time after which an agent may exit: less than the restart of a server takes, and a fleet would
/// leave its hosts whenever one is upgraded.
pub const SHORTEST_UNREACHABLE_EXIT: Duration = Duration::from_secs(60);

/// A server that is back is found within this time, however long it was down.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The shortest wait, whatever was drawn, so that a refusing server is not flooded.
const SHORTEST_BACKOFF: Duration = Duration::from_millis(100);

/// Whether the control plane has been unreachable for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// No; ask again after `left`.
    Within {
        /// Until the limit.
        left: Duration,
    },
    /// Yes: exit with [`EXIT_UNREACHABLE`].
    Lost {
        /// For how long by now.
        silence: Duration,
    },
}

/// Judges the time since the connection was lost (or since the start, if there never was one).
///
/// `Instant` stands still while a host sleeps, so one that wakes up has its full time to reconnect.
pub fn contact(disconnected_since: Instant, now: Instant, limit: Duration) -> Contact {
    let silence = now.saturating_duration_since(disconnected_since);
    match limit.checked_sub(silence) {
        Some(left) if !left.is_zero() => Contact::Within { left },
        _ => Contact::Lost { silence },
    }
}

/// The next attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTry {
    /// How long to wait first.
    pub delay: Duration,
    /// Which of the servers, by index.
    pub server: usize,
}

/// Where to connect first, so that a fleet spreads over its servers; `random` is in `0.0..1.0`.
pub fn first_server(servers: NonZeroUsize, random: f64) -> usize {
    let index = (fraction(random) * servers.get() as f64) as usize;
    index.min(servers.get() - 1)
}

/// What to do after `failures` attempts in a row (1 after the first), of which the last was at `server`.
///
/// Every server is tried once before the wait doubles, and each wait is drawn anew between nothing and
/// its longest, so that a fleet that lost a server together does not come back together.
pub fn next_try(failures: u32, server: usize, servers: NonZeroUsize, random: f64) -> NextTry {
    let rounds = failures.saturating_sub(1) / u32::try_from(servers.get()).unwrap_or(u32::MAX);
    let longest = FIRST_BACKOFF.saturating_mul(2u32.saturating_pow(rounds)).min(LONGEST_BACKOFF);
    let delay = longest.mul_f64(fraction(random)).max(SHORTEST_BACKOFF);
    NextTry { delay, server: server.wrapping_add(1) % servers.get() }
}

/// No draw, however odd, may stop an agent from reconnecting.
fn fraction(random: f64) -> f64 {
    if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn contact_is_lost_at_the_limit() {
        let start = Instant::now();
        let at = |minutes: u32| contact(start, start + MINUTE * minutes, DEFAULT_UNREACHABLE_EXIT);
        assert_eq!(at(0), Contact::Within { left: 5 * MINUTE });
        assert_eq!(at(4), Contact::Within { left: MINUTE });
        assert_eq!(at(5), Contact::Lost { silence: 5 * MINUTE });
        assert_eq!(at(6), Contact::Lost { silence: 6 * MINUTE });
        let early = contact(start + MINUTE, start, MINUTE);
        assert_eq!(early, Contact::Within { left: MINUTE }, "contact since the clock was read");
    }

    #[test]
    fn every_server_is_tried_before_the_wait_grows() {
        let three = NonZeroUsize::new(3).unwrap();
        let tries: Vec<_> =
            (1..=8).map(|failures| next_try(failures, failures as usize, three, 1.0)).collect();
        let seconds: Vec<_> = tries.iter().map(|next| next.delay.as_secs()).collect();
        assert_eq!(seconds, [1, 1, 1, 2, 2, 2, 4, 4]);
        let servers: Vec<_> = tries.iter().map(|next| next.server).collect();
        assert_eq!(servers, [2, 0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn waits_are_spread_and_bounded() {
        let one = NonZeroUsize::MIN;
        for failures in [0, 1, 5, 6, 100, u32::MAX] {
            for random in [-1.0, 0.0, 0.3, 0.999, 7.0, f64::NAN] {
                let next = next_try(failures, usize::MAX, one, random);
                assert!(next.delay >= SHORTEST_BACKOFF && next.delay <= LONGEST_BACKOFF, "{next:?}");
                assert_eq!(next.server, 0);
            }
        }
        assert_eq!(next_try(100, 0, one, 1.0).delay, LONGEST_BACKOFF);
        assert_eq!(next_try(100, 0, one, 0.5).delay, LONGEST_BACKOFF / 2);
        assert_ne!(next_try(1, 0, one, 0.2), next_try(1, 0, one, 0.8));
    }

    #[test]
    fn the_first_server_is_any_of_them() {
        let three = NonZeroUsize::new(3).unwrap();
        let drawn = [0.0, 0.34, 0.67, 0.999, 1.0, f64::NAN].map(|random| first_server(three, random));
        assert_eq!(drawn, [0, 1, 2, 2, 2, 0]);
    }
}
