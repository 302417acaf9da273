//! Maintenance windows: weekly, in a time zone, with daylight saving. No clock: the time is always an argument.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

/// A stretch of time: from `start`, before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// When it begins.
    pub start: Timestamp,
    /// The first moment behind it.
    pub end: Timestamp,
}

impl Span {
    /// Whether the moment lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && at < self.end
    }
}

/// A day of the week, as documents name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

text_enum!(Day, "a day", {
    Mon => "Mon",
    Tue => "Tue",
    Wed => "Wed",
    Thu => "Thu",
    Fri => "Fri",
    Sat => "Sat",
    Sun => "Sun",
});

impl Day {
    fn of(weekday: Weekday) -> Self {
        match weekday {
            Weekday::Monday => Self::Mon,
            Weekday::Tuesday => Self::Tue,
            Weekday::Wednesday => Self::Wed,
            Weekday::Thursday => Self::Thu,
            Weekday::Friday => Self::Fri,
            Weekday::Saturday => Self::Sat,
            Weekday::Sunday => Self::Sun,
        }
    }
}

/// The days on which a window opens: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Days(u8);

impl Days {
    /// Every day: `*`.
    pub const ALL: Self = Self(0b111_1111);

    /// Those days, if there are any.
    pub fn of(days: impl IntoIterator<Item = Day>) -> Option<Self> {
        let bits = days.into_iter().fold(0, |bits, day| bits | 1 << day as u8);
        (bits != 0).then_some(Self(bits))
    }

    /// Whether the day is one of them.
    pub fn contain(self, day: Day) -> bool {
        self.0 & 1 << day as u8 != 0
    }

    /// In the order of the week.
    pub fn iter(self) -> impl Iterator<Item = Day> {
        Day::ALL.iter().copied().filter(move |day| self.contain(*day))
    }
}

/// The IANA name of a time zone that this binary knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZoneName {
    name: Box<str>,
    zone: TimeZone,
}

/// A text that names no time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a time zone; expected an IANA name, like Europe/Berlin")]
pub struct NotATimeZone {
    found: String,
}

impl TimeZoneName {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self { name: "UTC".into(), zone: TimeZone::UTC }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The rules behind it.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

impl FromStr for TimeZoneName {
    type Err = NotATimeZone;

    /// The zones are those that were built in: every server must give a name the same meaning.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
        let zone = ZONES.get(text).ok().filter(|zone| !zone.is_unknown());
        let zone = zone.ok_or_else(|| NotATimeZone { found: text.chars().take(80).collect() })?;
        let name = zone.iana_name().unwrap_or(text).into();
        Ok(Self { name, zone })
    }
}

impl fmt::Display for TimeZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A weekly maintenance window: from `start_hour` on each of `days`, in a time zone. It may cross midnight. It lasts
/// the same number of hours on days with a daylight saving change; if its hour is skipped it opens at the moment of
/// the change, and if its hour occurs twice it opens the first time only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeeklyWindow {
    /// The days on which it opens.
    pub days: Days,
    /// The hour at which it opens, 0-23.
    pub start_hour: u8,
    /// For how many hours, 1-24.
    pub window_hours: u8,
    /// Where the hour is what clocks show.
    pub timezone: TimeZoneName,
}

impl Default for WeeklyWindow {
    /// Every day, four hours from midnight in UTC.
    fn default() -> Self {
        Self { days: Days::ALL, start_hour: 0, window_hours: 4, timezone: TimeZoneName::utc() }
    }
}

impl WeeklyWindow {
    /// The window that is open at that moment.
    pub fn open_at(&self, at: Timestamp) -> Option<Span> {
        self.around(at, -2..=1).into_iter().rev().find(|span| span.contains(at))
    }

    /// The first window that opens at that moment or later.
    pub fn next_from(&self, at: Timestamp) -> Option<Span> {
        self.around(at, -1..=8).into_iter().find(|span| span.start >= at)
    }

    /// When hosts may start that may from that moment on, and in which window: at once, if one is open.
    pub fn first_from(&self, from: Timestamp) -> Option<(Timestamp, Span)> {
        let window = self.open_at(from).or_else(|| self.next_from(from))?;
        Some((window.start.max(from), window))
    }

    fn around(&self, at: Timestamp, days: std::ops::RangeInclusive<i64>) -> Vec<Span> {
        let today = self.timezone.zone().to_datetime(at).date();
        days.filter_map(|day| self.opening_on(today.checked_add(SignedDuration::from_hours(24 * day)).ok()?))
            .collect()
    }

    /// The windows that open on those dates of its zone.
    pub(super) fn openings_on(&self, dates: impl Iterator<Item = Date>) -> impl Iterator<Item = Span> {
        dates.filter_map(|date| self.opening_on(date))
    }

    fn opening_on(&self, date: Date) -> Option<Span> {
        if !self.days.contain(Day::of(date.weekday())) {
            return None;
        }
        let opening = date.at(i8::try_from(self.start_hour).ok()?, 0, 0, 0);
        let start = self.moment_of(opening)?;
        let end = start.checked_add(SignedDuration::from_hours(i64::from(self.window_hours))).ok()?;
        Some(Span { start, end })
    }

    /// When clocks first show that time or, if they skip it, when they do.
    fn moment_of(&self, time: DateTime) -> Option<Timestamp> {
        let zone = self.timezone.zone();
        let moment = zone.to_ambiguous_timestamp(time);
        let earlier = moment.earlier().ok()?;
        match moment.offset() {
            AmbiguousOffset::Gap { .. } => zone.following(earlier).next().map(|change| change.timestamp()),
            _ => Some(earlier),
        }
    }
}
