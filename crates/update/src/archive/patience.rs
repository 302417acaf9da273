//! How slow and how long a transfer may be, and who may end it: settings of the library, measured by the monotonic clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::SourceErrorKind;

/// How often a transfer that waits looks whether it is still wanted.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The limits of transfers: a server that sends a byte now and then must not keep a host from its next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferLimits {
    /// For an answer of the control plane.
    pub answer: Duration,
    /// For the checksum of an archive.
    pub checksum: Duration,
    /// For an archive, resumed as often as it may be. Several mirrors share it.
    pub archive: Duration,
    /// The least that has to come of an archive or its checksum while a reader waits for as long as `rate_window`.
    pub rate_bytes: u64,
    /// See `rate_bytes`.
    pub rate_window: Duration,
}

impl Default for TransferLimits {
    /// 8 KiB a second over a minute, and an hour in all: what is slower would not end before `refit-update.service` does.
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(15),
            checksum: Duration::from_secs(60),
            archive: Duration::from_secs(3600),
            rate_bytes: 60 * 8 * 1024,
            rate_window: Duration::from_secs(60),
        }
    }
}

/// Tells whether a transfer should end, because a person waits for the host.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    /// Asks that function, now and then.
    pub fn when(is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_wanted))
    }

    /// No one interrupts.
    pub fn never() -> Self {
        Self::when(|| false)
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// How long one transfer is waited for, from when this is made.
#[derive(Debug, Clone)]
pub struct Patience {
    began: Instant,
    within: Duration,
    interrupt: Interrupt,
    /// When the interrupt is asked next, in milliseconds since the beginning.
    next_look: Arc<AtomicU64>,
}

impl Patience {
    /// Ends after that time, or when it is interrupted.
    pub fn new(within: Duration, interrupt: Interrupt) -> Self {
        Self { began: Instant::now(), within, interrupt, next_look: Arc::default() }
    }

    /// Fails when the time is over, or a person waits for the host.
    pub fn check(&self) -> Result<(), SourceErrorKind> {
        let elapsed = self.began.elapsed();
        if elapsed >= self.within {
            return Err(SourceErrorKind::TooLong(self.within));
        }
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        if now < self.next_look.load(Ordering::Relaxed) {
            return Ok(());
        }
        if (self.interrupt.0)() {
            return Err(SourceErrorKind::Stopped);
        }
        self.next_look.store(now + LOOK_EVERY.as_millis() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Waits, unless there is a reason not to.
    pub fn sleep(&self, length: Duration) -> Result<(), SourceErrorKind> {
        let end = Instant::now() + length;
        loop {
            self.check()?;
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK_EVERY)),
            }
        }
    }
}

/// Measures what comes while a reader waits: a slow disk is not held against a mirror.
#[derive(Debug)]
pub(super) struct RateMeter {
    least: u64,
    window: Duration,
    bytes: u64,
    waited: Duration,
}

impl RateMeter {
    pub(super) fn new(limits: &TransferLimits) -> Self {
        let TransferLimits { rate_bytes: least, rate_window: window, .. } = *limits;
        Self { least, window, bytes: 0, waited: Duration::ZERO }
    }

    /// Counts bytes that were waited for so long; fails if they came too slowly.
    pub(super) fn count(&mut self, bytes: u64, waited: Duration) -> Result<(), SourceErrorKind> {
        (self.bytes, self.waited) = (self.bytes + bytes, self.waited.saturating_add(waited));
        if self.waited < self.window {
            return Ok(());
        }
        let (bytes, waited) = (self.bytes, self.waited);
        (self.bytes, self.waited) = (0, Duration::ZERO);
        // A window that one long wait has made longer is measured by its own length.
        let least = self.least as f64 * (waited.as_secs_f64() / self.window.as_secs_f64());
        if (bytes as f64) < least {
            return Err(SourceErrorKind::TooSlow { bytes, waited, least: least as u64 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_what_was_waited_for() {
        let limits = TransferLimits {
            rate_bytes: 1000,
            rate_window: Duration::from_secs(10),
            ..TransferLimits::default()
        };
        let second = Duration::from_secs(1);
        let mut meter = RateMeter::new(&limits);
        for _ in 0..100 {
            meter.count(100, second).unwrap();
        }
        let mut meter = RateMeter::new(&limits);
        let slow = (0..100).find_map(|n| meter.count(99, second).err().map(|error| (n, error)));
        let (bytes, waited) = (990, 10 * second);
        assert_eq!(slow, Some((9, SourceErrorKind::TooSlow { bytes, waited, least: 1000 })));
        let mut meter = RateMeter::new(&limits);
        for _ in 0..100 {
            meter.count(1, Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn a_wait_ends_by_its_time_or_by_a_person() {
        let patience = Patience::new(Duration::ZERO, Interrupt::never());
        assert_eq!(patience.sleep(Duration::from_secs(600)), Err(SourceErrorKind::TooLong(Duration::ZERO)));
        let patience = Patience::new(Duration::from_secs(600), Interrupt::when(|| true));
        assert_eq!(patience.sleep(Duration::from_secs(600)), Err(SourceErrorKind::Stopped));
        let patience = Patience::new(Duration::from_secs(600), Interrupt::never());
        assert_eq!(patience.sleep(Duration::ZERO), Ok(()));
    }
}
