use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use rustls::pki_types::UnixTime;

use crate::{Error, Result};

/// How far back certificates are dated, because the clock of the machine that checks one may be behind
/// the clock of the one that signed it.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// How long a certificate authority lives.
pub const AUTHORITY_YEARS: i32 = 10;

/// When to renew what is valid from `not_before` to `not_after`: at half of its life for a `jitter` of 0,
/// up to two thirds for 1, so that hosts that joined together do not all ask together, and a third of its
/// life is left to try again.
pub fn renew_after(not_before: Timestamp, not_after: Timestamp, jitter: f64) -> Timestamp {
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    let life = not_after.duration_since(not_before);
    let wait = life.as_secs_f64() * (0.5 + jitter / 6.0);
    not_before.checked_add(SignedDuration::from_secs(wait as i64)).unwrap_or(not_after)
}

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

/// The time as verifiers want it. A clock before 1970 finds every certificate not yet valid.
pub(crate) fn unix(at: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(since_epoch(at).unwrap_or_default())
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
    fn renewal_is_between_half_and_two_thirds() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (start, end) = (at("2026-01-01T00:00:00Z"), at("2026-01-31T00:00:00Z"));
        for (jitter, expected) in [
            (0.0, "2026-01-16T00:00:00Z"),
            (0.5, "2026-01-18T12:00:00Z"),
            (1.0, "2026-01-21T00:00:00Z"),
            (-3.0, "2026-01-16T00:00:00Z"),
            (7.0, "2026-01-21T00:00:00Z"),
            (f64::NAN, "2026-01-16T00:00:00Z"),
            (f64::INFINITY, "2026-01-21T00:00:00Z"),
        ] {
            assert_eq!(renew_after(start, end, jitter), at(expected), "{jitter}");
        }
        assert!(renew_after(end, start, 1.0) < end, "what ended before it began is renewed at once");
        renew_after(Timestamp::MIN, Timestamp::MAX, 1.0);
    }

    #[test]
    fn odd_clocks_are_errors_not_panics() {
        for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            assert!(matches!(Validity::of_authority(now), Err(Error::Clock(_))), "{now}");
        }
        let leaf = Validity::of_leaf("2026-01-01T00:00:00Z".parse().unwrap(), Duration::MAX, Timestamp::MAX);
        let mut params = rcgen::CertificateParams::default();
        leaf.unwrap().apply(&mut params).unwrap();
        assert_eq!(unix(Timestamp::MIN).as_secs(), 0);
    }
}
