//! The clocks of the system. The wall clock is only stored and shown; everything is measured by the clock that counts
//! from the boot, because that one never jumps.

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

use crate::host::Clock;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The clocks of the system.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Every Linux has this clock.
    fn uptime(&self) -> Duration {
        clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
    }

    fn awake(&self) -> Duration {
        clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
    }

    fn boot_id(&self) -> String {
        std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
    }

    fn sleep(&self, length: Duration) {
        std::thread::sleep(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_grows_and_the_boot_has_a_name() {
        let before = SystemClock.uptime();
        SystemClock.sleep(Duration::from_millis(1));
        assert!(SystemClock.uptime() > before && !before.is_zero());
        assert_eq!(SystemClock.boot_id().len(), 36);
    }
}
