//! Converts timestamps between the wire and the domain.

use jiff::Timestamp;

/// Converts a timestamp for the wire.
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = (at.as_second(), at.subsec_nanosecond());
    // A timestamp before 1970 has a negative fraction here and a positive one on the wire.
    match nanos {
        0.. => prost_types::Timestamp { seconds, nanos },
        _ => prost_types::Timestamp { seconds: seconds - 1, nanos: nanos + 1_000_000_000 },
    }
}

/// Converts a timestamp from the wire; none if it is absent or out of range.
pub fn moment(at: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    at.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_back_as_they_went() {
        for text in ["2026-11-16T00:17:49.123456789Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.25Z"] {
            let at: Timestamp = text.parse().unwrap();
            let sent = timestamp(at);
            assert!((0..1_000_000_000).contains(&sent.nanos), "{text}");
            assert_eq!(moment(Some(sent)), Some(at));
        }
        assert_eq!(moment(None), None);
        assert_eq!(moment(Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 })), None);
    }
}
