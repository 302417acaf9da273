//! Durations in the configuration, with bounds.

use std::time::Duration;

use jiff::SignedDuration;

/// Nothing that an agent does again and again needs to be done more often.
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(10);

/// What is longer than a week is a slip of the pen, or meant as never.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads `1h0m0s`, `90s`, `5m`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    parse_from(SHORTEST_PERIOD, text)
}

/// The same with another lower bound.
pub(super) fn parse_from(shortest: Duration, text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|period| Duration::try_from(period).ok());
    let Some(period) = parsed else {
        let shown: String = text.chars().take(80).collect();
        return Err(format!("{shown:?} is not a period; expected something like 1h0m0s, 5m or 30s"));
    };
    if period < shortest || period > LONGEST_PERIOD {
        return Err(format!("{text:?} is out of bounds; expected {}s to 168h (7 days)", shortest.as_secs()));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        for (text, seconds) in [
            ("1h0m0s", 3600),
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5400),
            ("10s", 10),
            ("168h", 604_800),
            ("1.5h", 5400),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "3600", "soon", "9s", "9.999s", "168h0m1s", "-1h", "1h ago", "1y", "99999999999999h"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("5s").unwrap_err(), r#""5s" is out of bounds; expected 10s to 168h (7 days)"#);
        let minute = Duration::from_secs(60);
        assert_eq!(parse_from(minute, "1m"), Ok(minute));
        let refused = parse_from(minute, "59s").unwrap_err();
        assert_eq!(refused, r#""59s" is out of bounds; expected 60s to 168h (7 days)"#);
    }
}
