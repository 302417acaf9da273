//! Times and counts for people, phrased the same in `refitctl` and on the dashboard.

use jiff::Timestamp;

/// A moment as seen from `now`: `in 3 hours`, `1 second ago`.
pub fn in_words(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs();
    let steps = [(365 * 86_400, "year"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let length = seconds.unsigned_abs();
    let Some((unit, name)) = steps.into_iter().find(|(unit, _)| length >= *unit) else { return "now".into() };
    let span = counted((length + unit / 2) / unit, name);
    if seconds > 0 { format!("in {span}") } else { format!("{span} ago") }
}

/// `1 host`, `2 hosts`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
