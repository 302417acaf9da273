//! Compact points in time for the engine, and the periods that are not configurable.

use jiff::{SignedDuration, Timestamp};

/// How long after its connection ended a host counts as lost. A host that upgrades or restarts is back sooner.
pub const EXPIRES_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// How often an updater polls without being woken.
pub const POLLING_PERIOD: SignedDuration = SignedDuration::from_secs(600);

/// How long after an epoch began a host may still be under way to the version before: longer than any time-out, and
/// short enough for a host that never reports.
pub const SETTLES_WITHIN: SignedDuration = SignedDuration::from_secs(900);

/// A point in time to the microsecond: half the size of a timestamp, because the engine keeps two for each
/// host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Micros(i64);

impl Micros {
    /// Later than every other.
    pub(crate) const NEVER: Self = Self(i64::MAX);

    pub(crate) fn plus(self, length: SignedDuration) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.as_micros()).unwrap_or(i64::MAX)))
    }

    pub(crate) fn plus_seconds(self, seconds: u32) -> Self {
        self.plus(SignedDuration::from_secs(seconds.into()))
    }

    /// None for points in time that a timestamp cannot represent.
    pub(crate) fn timestamp(self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.0).ok()
    }
}

impl From<Timestamp> for Micros {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp.as_microsecond())
    }
}
