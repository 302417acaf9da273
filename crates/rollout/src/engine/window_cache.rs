//! A weekly window with its last computed spans. The engine asks it at every event.

use jiff::Timestamp;
use refit_types::{Span, WeeklyWindow};

/// A weekly window with its open and next span cached: time zone arithmetic is too slow for every event.
#[derive(Debug, Clone)]
pub(crate) struct WindowCache {
    window: WeeklyWindow,
    known: Option<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    from: Timestamp,
    open: Option<Span>,
    next: Option<Span>,
}

/// Equal if the windows are equal: the cache does not count.
impl PartialEq for WindowCache {
    fn eq(&self, other: &Self) -> bool {
        self.window == other.window
    }
}

impl Known {
    fn of(window: &WeeklyWindow, now: Timestamp) -> Self {
        let next = now.checked_add(jiff::SignedDuration::from_nanos(1)).ok();
        Self { from: now, open: window.open_at(now), next: next.and_then(|after| window.next_from(after)) }
    }

    fn holds_at(&self, now: Timestamp) -> bool {
        self.from <= now
            && self.open.is_none_or(|open| now < open.end)
            && self.next.is_some_and(|next| now < next.start)
    }
}

impl WindowCache {
    pub(crate) fn new(window: WeeklyWindow) -> Self {
        Self { window, known: None }
    }

    /// Fills the cache for that moment; it is valid until the window next opens or closes.
    pub(crate) fn refresh(&mut self, now: Timestamp) {
        if self.known.is_none_or(|known| !known.holds_at(now)) {
            self.known = Some(Known::of(&self.window, now));
        }
    }

    fn at(&self, now: Timestamp) -> Known {
        match self.known {
            Some(known) if known.holds_at(now) => known,
            _ => Known::of(&self.window, now),
        }
    }

    pub(crate) fn open(&self, now: Timestamp) -> Option<Span> {
        self.at(now).open
    }

    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.open(now).is_some()
    }

    pub(crate) fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        self.at(now).next.map(|next| next.start)
    }

    pub(crate) fn open_or_next(&self, now: Timestamp) -> Option<Span> {
        let known = self.at(now);
        known.open.or(known.next)
    }
}
