//! Windows on every day of a year, against a second and plain reckoning that reads a wall clock minute by
//! minute.

#![allow(clippy::unwrap_used)]

use jiff::civil::{Date, date};
use jiff::{SignedDuration, Timestamp, ToSpan};
use refit_types::{Day, Days, Span, TimeZoneName, WeeklyWindow};

const ZONES: [&str; 9] = [
    "UTC",
    "Asia/Kolkata",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Pacific/Apia",
];

fn window(zone: &str, days: Days, start_hour: u8, window_hours: u8) -> WeeklyWindow {
    WeeklyWindow { days, start_hour, window_hours, timezone: zone.parse().unwrap() }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn days(text: &str) -> Days {
    Days::of(text.split(',').map(|day| day.parse::<Day>().unwrap())).unwrap()
}

fn day_of(date: Date) -> Day {
    Day::ALL[date.weekday().to_monday_zero_offset() as usize]
}

/// What a wall clock showed, minute by minute: the moment, the date and the minute of the day.
fn clock(zone: &str, from: Date, to: Date) -> Vec<(Timestamp, Date, u16)> {
    let zone: TimeZoneName = zone.parse().unwrap();
    let utc = |date: Date| date.at(0, 0, 0, 0).to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
    let (mut now, end) = (utc(from), utc(to));
    let mut shown = Vec::new();
    while now < end {
        let time = zone.zone().to_datetime(now);
        shown.push((now, time.date(), time.hour() as u16 * 60 + time.minute() as u16));
        now += 1.minute();
    }
    shown
}

/// For each date the first moment at which the clock shows that hour of it or anything later.
fn naive_openings(shown: &[(Timestamp, Date, u16)], hour: u8) -> Vec<(Date, Timestamp)> {
    let mut openings = Vec::new();
    let mut date = shown[0].1.tomorrow().unwrap();
    for (now, today, minute) in shown {
        while *today > date || (*today == date && *minute >= u16::from(hour) * 60) {
            openings.push((date, *now));
            date = date.tomorrow().unwrap();
        }
    }
    openings
}

#[test]
fn every_day_of_a_year_has_one_opening_of_the_right_length() {
    // Apia skipped the whole of 30 December 2011.
    let years = |zone: &str| if zone == "Pacific/Apia" { [2011, 2012] } else { [2026, 2027] };
    for zone in ZONES {
        let [first, last] = years(zone);
        let shown = clock(zone, date(first, 1, 1), date(last, 1, 12));
        for hour in 0..24 {
            let window = window(zone, Days::ALL, hour, 4);
            let naive = naive_openings(&shown, hour);
            assert!(naive.len() > 370, "{zone} {hour}: {}", naive.len());
            let mut from = naive[0].1;
            for (n, (date, start)) in naive.iter().enumerate() {
                let next = window.next_from(from).unwrap();
                assert_eq!(next.start, *start, "{zone} {hour}: {date}");
                assert_eq!(
                    next.end.duration_since(next.start),
                    SignedDuration::from_hours(4),
                    "{zone} {date}"
                );
                // Two dates share an opening only where one of them was skipped whole.
                let shared = naive.get(n + 1).is_some_and(|(_, later)| later == start);
                assert!(!shared || zone == "Pacific/Apia", "{zone} {hour}: {date}");
                from = if shared { *start } else { next.start + 1.nanosecond() };
            }
        }
    }
}

#[test]
fn it_is_open_when_a_list_of_all_openings_says_so() {
    let lists = [Days::ALL, days("Sun"), days("Mon,Wed,Sat")];
    for zone in ZONES {
        let shown = clock(zone, date(2026, 1, 1), date(2027, 1, 12));
        for hour in 0..24 {
            let naive = naive_openings(&shown, hour);
            let shapes = [(1, lists[0]), (5, lists[1]), (24, lists[2]), (24, lists[0])];
            for (length, list) in [shapes[usize::from(hour % 4)], shapes[usize::from(hour / 4 % 4)]] {
                let window = window(zone, list, hour, length);
                let spans: Vec<Span> = naive
                    .iter()
                    .filter(|(date, _)| list.contain(day_of(*date)))
                    .map(|(_, start)| Span { start: *start, end: *start + i64::from(length).hours() })
                    .collect();
                // Every edge, a moment to each side, and one in between.
                for span in &spans[..spans.len() - 2] {
                    for edge in [span.start, span.end, span.start + 30.minutes()] {
                        for moment in [edge - 1.nanosecond(), edge, edge + 1.nanosecond()] {
                            if moment < spans[2].start {
                                continue;
                            }
                            let near = spans.partition_point(|span| span.start <= moment);
                            let open = spans[..near].last().filter(|span| span.contains(moment));
                            assert_eq!(
                                window.open_at(moment),
                                open.copied(),
                                "{zone} {hour} {length} {moment}"
                            );
                            let next =
                                spans[near.saturating_sub(1)..].iter().find(|span| span.start >= moment);
                            if let Some(next) = next {
                                assert_eq!(window.next_from(moment), Some(*next), "{zone} {hour} {moment}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_crosses_midnight_and_the_end_of_the_week() {
    let window = window("UTC", days("Sun"), 22, 5);
    let open = Span { start: at("2026-03-01T22:00:00Z"), end: at("2026-03-02T03:00:00Z") };
    assert_eq!(window.open_at(at("2026-03-02T02:59:59Z")), Some(open), "Monday belongs to Sunday's");
    assert_eq!(window.open_at(at("2026-03-02T03:00:00Z")), None);
    assert_eq!(window.open_at(at("2026-03-02T22:00:00Z")), None, "Monday has none of its own");
    assert_eq!(window.next_from(open.start), Some(open), "one that opens now is the next");
    assert_eq!(window.next_from(open.start + 1.nanosecond()).unwrap().start, at("2026-03-08T22:00:00Z"));
}

#[test]
fn an_hour_that_is_skipped_opens_at_the_change_and_one_that_repeats_opens_once() {
    let starts = |zone: &str, hour, from: &str| {
        let window = window(zone, Days::ALL, hour, 1);
        let first = window.next_from(at(from)).unwrap();
        (first.start.to_string(), window.next_from(first.start + 1.nanosecond()).unwrap().start.to_string())
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    // Clocks go from 02:00 to 03:00.
    let spring = "2026-03-28T12:00:00Z";
    assert_eq!(starts("Europe/Berlin", 2, spring), pair("2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"));
    assert_eq!(starts("Europe/Berlin", 3, spring), pair("2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"));
    // And in autumn from 03:00 back to 02:00.
    let autumn = "2026-10-24T12:00:00Z";
    assert_eq!(starts("Europe/Berlin", 2, autumn), pair("2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"));
    // By half an hour, from 02:00 to 02:30.
    let lord_howe = "2026-10-03T10:00:00Z";
    assert_eq!(
        starts("Australia/Lord_Howe", 2, lord_howe),
        pair("2026-10-03T15:30:00Z", "2026-10-04T15:00:00Z")
    );
    // At midnight, which does not come.
    let santiago = "2026-09-05T12:00:00Z";
    assert_eq!(starts("America/Santiago", 0, santiago), pair("2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"));
    // A whole day, which opens at the change too.
    let apia = "2011-12-30T08:00:00Z";
    assert_eq!(starts("Pacific/Apia", 5, apia), pair("2011-12-30T10:00:00Z", "2011-12-30T15:00:00Z"));
}

#[test]
fn a_window_over_the_change_lasts_its_hours() {
    let window = window("America/New_York", days("Sat"), 23, 6);
    for (from, start, end) in [
        ("2026-03-07T12:00:00Z", "2026-03-08T04:00:00Z", "2026-03-08T10:00:00Z"),
        ("2026-10-31T12:00:00Z", "2026-11-01T03:00:00Z", "2026-11-01T09:00:00Z"),
    ] {
        assert_eq!(window.next_from(at(from)), Some(Span { start: at(start), end: at(end) }));
        assert!(window.open_at(at(end) - 1.second()).is_some() && window.open_at(at(end)).is_none());
    }
}

#[test]
fn zones_are_those_that_were_built_in() {
    assert_eq!("europe/berlin".parse::<TimeZoneName>().unwrap().as_str(), "Europe/Berlin");
    assert_eq!("UTC".parse::<TimeZoneName>().unwrap(), TimeZoneName::utc());
    for bad in ["", "Berlin", "../etc/passwd", "/etc/localtime", "Local", "Etc/Unknown", "UTC+1", "CET-1CEST"]
    {
        let error = bad.parse::<TimeZoneName>().unwrap_err().to_string();
        assert_eq!(error, format!("{bad:?} is not a time zone; expected an IANA name, like Europe/Berlin"));
    }
}
