//! Maintenance windows computed by brute force, to check the real calendar against.

use std::cell::RefCell;
use std::collections::HashMap;

use jiff::civil::{Date, Weekday};
use jiff::{SignedDuration, Timestamp};
use refit_types::{Day, Span, WeeklyWindow};

thread_local! {
    static OPENINGS: RefCell<HashMap<(String, u8, Date), Timestamp>> = RefCell::default();
}

/// The first quarter of an hour at which clocks there show that hour of that day, or have passed it by.
fn opening(window: &WeeklyWindow, date: Date) -> Timestamp {
    let key = (window.timezone.to_string(), window.start_hour, date);
    if let Some(known) = OPENINGS.with_borrow(|openings| openings.get(&key).copied()) {
        return known;
    }
    let wanted = date.at(window.start_hour as i8, 0, 0, 0);
    let as_if_utc = jiff::tz::TimeZone::UTC.to_timestamp(wanted).unwrap();
    let quarters = (-15 * 4..15 * 4).map(|n| as_if_utc + SignedDuration::from_mins(15 * n));
    let found = quarters.into_iter().find(|at| window.timezone.zone().to_datetime(*at) >= wanted).unwrap();
    OPENINGS.with_borrow_mut(|openings| openings.insert(key, found));
    found
}

fn is_due(window: &WeeklyWindow, date: Date) -> bool {
    window.days.contain(match date.weekday() {
        Weekday::Monday => Day::Mon,
        Weekday::Tuesday => Day::Tue,
        Weekday::Wednesday => Day::Wed,
        Weekday::Thursday => Day::Thu,
        Weekday::Friday => Day::Fri,
        Weekday::Saturday => Day::Sat,
        Weekday::Sunday => Day::Sun,
    })
}

/// All openings from three days before to nine days after, in order.
fn openings(window: &WeeklyWindow, now: Timestamp) -> Vec<Span> {
    let today = jiff::tz::TimeZone::UTC.to_datetime(now).date();
    let days = (-3..=9).map(|n| today + SignedDuration::from_hours(24 * n));
    let hours = SignedDuration::from_hours(window.window_hours.into());
    let spans = days.filter(|date| is_due(window, *date)).map(|date| opening(window, date));
    spans.map(|start| Span { start, end: start + hours }).collect()
}

/// The window that is open; of two, the one that opened last.
pub fn open_window(window: &WeeklyWindow, now: Timestamp) -> Option<Span> {
    openings(window, now).into_iter().rfind(|span| span.start <= now && now < span.end)
}

/// When the window opens next.
pub fn next_opening(window: &WeeklyWindow, now: Timestamp) -> Timestamp {
    openings(window, now).into_iter().find(|span| span.start > now).unwrap().start
}
