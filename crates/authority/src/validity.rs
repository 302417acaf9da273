//! From when and until when a certificate that is made now is valid.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::{Error, Result};

/// How far back certificates are dated, because the clock of the machine that checks one may be behind
/// the clock of the one that signed it.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// How long a certificate authority lives.
pub const AUTHORITY_YEARS: i32 = 10;

/// When a certificate made now starts and ends.
pub(crate) struct Validity {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Validity {
    pub(crate) fn of_authority(now: Timestamp) -> Result<Self> {
        let end = now.to_zoned(TimeZone::UTC).checked_add(AUTHORITY_YEARS.years());
        let not_after = end.map_err(|_| Error::Clock(now))?.timestamp();
        Ok(Self { not_before: back_dated(now)?, not_after })
    }

    /// `ttl` from now, but never past `end`.
    pub(crate) fn of_leaf(now: Timestamp, ttl: Duration, end: Timestamp) -> Result<Self> {
        let not_after = now.checked_add(ttl).map_or(end, |wanted| wanted.min(end));
        Ok(Self { not_before: back_dated(now)?, not_after })
    }

    pub(crate) fn apply(&self, params: &mut rcgen::CertificateParams) -> Result<()> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + since_epoch(self.not_before)?;
        params.not_after = epoch + since_epoch(self.not_after)?;
        Ok(())
    }
}

fn back_dated(now: Timestamp) -> Result<Timestamp> {
    let start = now.checked_sub(CLOCK_SKEW).map_err(|_| Error::Clock(now))?;
    since_epoch(start).map(|_| start)
}

/// Whole seconds, which is all that a certificate holds.
fn since_epoch(at: Timestamp) -> Result<Duration> {
    u64::try_from(at.as_second()).map(Duration::from_secs).map_err(|_| Error::Clock(at))
}

/// A length of time for people: `90 days`, `1 minute`, `61 seconds`.
pub(crate) fn in_words(length: &Duration) -> String {
    let seconds = length.as_secs();
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let fits = |(size, _): &(u64, &str)| seconds >= *size && seconds.is_multiple_of(*size);
    let (size, unit) = units.into_iter().find(fits).unwrap_or((1, "second"));
    let count = seconds / size;
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_well() {
        for (seconds, words) in
            [(0, "0 seconds"), (1, "1 second"), (60, "1 minute"), (61, "61 seconds"), (7_776_000, "90 days")]
        {
            assert_eq!(in_words(&Duration::from_secs(seconds)), words);
        }
    }

    #[test]
    fn odd_clocks_are_errors_not_panics() {
        for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            assert!(matches!(Validity::of_authority(now), Err(Error::Clock(_))), "{now}");
        }
        let leaf = Validity::of_leaf("2026-01-01T00:00:00Z".parse().unwrap(), Duration::MAX, Timestamp::MAX);
        let mut params = rcgen::CertificateParams::default();
        leaf.unwrap().apply(&mut params).unwrap();
    }
}
