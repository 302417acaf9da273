//! How long a host's certificate lives, and when it is due to be renewed. Agents ask it of their own identities.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How long a host's certificates live, and the longest they may. Agents renew at half of it, so a host
/// can be off for a fortnight of holidays and still come back by itself; one that is off for longer joins
/// again.
pub const HOST_TTL: Duration = Duration::from_secs(30 * 86_400);

/// When to renew what is valid from `not_before` to `not_after`: at half of its life for a `jitter` of 0,
/// up to two thirds for 1, so that hosts that joined together do not all ask together, and a third of its
/// life is left to try again.
pub fn renew_after(not_before: Timestamp, not_after: Timestamp, jitter: f64) -> Timestamp {
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    let life = not_after.duration_since(not_before);
    let wait = life.as_secs_f64() * (0.5 + jitter / 6.0);
    not_before.checked_add(SignedDuration::from_secs(wait as i64)).unwrap_or(not_after)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
