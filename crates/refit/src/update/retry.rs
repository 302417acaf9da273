//! How long one process goes on with an update that cannot begin, and how it waits for its next try. Called by `update`
//! only; the timer starts another process after this one.

use std::time::{Duration, Instant};

use super::host::Host;

/// How often an update that cannot begin is tried by one process: about 20 minutes, if each try fails at once.
const TRIES: u32 = 10;
/// When the last of these tries begins at the latest, counted from the start of the process. A try takes up to an hour where
/// a download is slow, a new attempt may wait an hour of jitter before it, and an updater of another version may follow:
/// `TimeoutStartSec` of the unit is longer than all that, so that it ends none that has begun to switch.
const TRY_FOR: Duration = Duration::from_secs(60 * 60);
/// How often a process that waits for its next try looks whether the agent wakes it for another attempt.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The tries of one process. `Instant` is the clock that systemd measures its timeouts by; setting the time moves neither.
#[derive(Debug)]
pub(super) struct Tries {
    began: Instant,
    made: u32,
}

impl Tries {
    pub(super) fn begin(now: Instant) -> Self {
        Self { began: now, made: 1 }
    }

    /// Counts another try, if it is not one too many and does not begin too late.
    pub(super) fn take_another(&mut self, now: Instant, delay: Duration) -> bool {
        let is_allowed = self.made < TRIES && now.duration_since(self.began) + delay < TRY_FOR;
        self.made += u32::from(is_allowed);
        is_allowed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextTry {
    OfThisAttempt,
    OfAnotherAttempt,
}

/// Waits, but not if the agent wakes the updater for another attempt: no other updater would be started for it meanwhile.
pub(super) fn wait_for_next_try(host: &Host, attempt: u64, delay: Duration) -> NextTry {
    let end = Instant::now() + delay;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if host.woken_for().is_some_and(|woken| woken != attempt) {
            return NextTry::OfAnotherAttempt;
        }
        if left.is_zero() {
            return NextTry::OfThisAttempt;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn quick_tries_end_by_their_number() {
        let began = Instant::now();
        let mut tries = Tries::begin(began);
        let allowed = (1..20).filter(|minute| tries.take_another(began + MINUTE * *minute, MINUTE)).count();
        assert_eq!(allowed + 1, TRIES as usize);
    }

    /// Each try takes 25 minutes, as slow downloads do.
    #[test]
    fn slow_tries_end_by_the_time_that_they_take() {
        let began = Instant::now();
        let mut tries = Tries::begin(began);
        assert!(tries.take_another(began + 25 * MINUTE, 5 * MINUTE));
        assert!(tries.take_another(began + 55 * MINUTE, 4 * MINUTE));
        assert!(!tries.take_another(began + 55 * MINUTE, 5 * MINUTE), "it would begin after an hour");
        assert!(!tries.take_another(began + 84 * MINUTE, 5 * MINUTE));
        assert!(
            !Tries::begin(began).take_another(began + 60 * MINUTE, Duration::ZERO),
            "after a long jitter"
        );
    }
}
