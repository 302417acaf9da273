//! The timeline of a rollout's groups, past events and forecast, laid out for an SVG template. No I/O.

use std::sync::Arc;

use jiff::Timestamp;

use super::forecast::Forecast;
use super::format::{Mark, shortened, utc};
use super::group_card::GroupCard;
use crate::events::Event;

const LEFT: f64 = 150.0;
const MIDDLE: f64 = 450.0;
const RIGHT: f64 = 750.0;
const ROW: usize = 24;
/// Above the rows and below them, for the words on the axis.
const MARGIN: usize = 18;
/// The minimum width, so that short periods are visible.
const LEAST: f64 = 3.0;
/// Letters of a name, and of a reason, that fit.
const LONGEST_NAME: usize = 22;
const LONGEST_REASON: usize = 44;

/// The past and the forecast of each group. Both halves have a scale of their own, so that a minute behind and a week
/// ahead are both visible.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) height: usize,
    /// The lowest place of the rows.
    pub(super) floor: usize,
    pub(super) rows: Vec<Row>,
    pub(super) begin: Mark,
    /// The end of the timeline; none if it is unknown.
    pub(super) end: Option<Mark>,
    /// The position of the current time, if there is a forecast.
    pub(super) now: Option<u64>,
    /// The legend of the states that occur.
    pub(super) legend: Vec<(&'static str, &'static str)>,
}

/// One group.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) shown: String,
    pub(super) y: usize,
    pub(super) stretches: Vec<Stretch>,
    /// Why nothing is planned.
    pub(super) reason: String,
}

/// A period in which a group was or will be in one state.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) class: &'static str,
    pub(super) x: String,
    pub(super) width: String,
    pub(super) told: String,
}

const LEGEND: [(&str, &str); 4] = [
    ("upgraded", "active until it succeeded"),
    ("in_flight", "active"),
    ("failed", "halted"),
    ("planned", "planned"),
];

/// Maps a range of time to a range of pixels.
#[derive(Clone, Copy)]
struct Scale {
    from: Timestamp,
    to: Timestamp,
    left: f64,
    right: f64,
}

impl Scale {
    fn x(self, at: Timestamp) -> f64 {
        let whole = self.to.duration_since(self.from).as_secs_f64().max(1.0);
        let part = at.duration_since(self.from).as_secs_f64() / whole;
        self.left + part.clamp(0.0, 1.0) * (self.right - self.left)
    }

    fn stretch(self, class: &'static str, word: &str, from: Timestamp, to: Timestamp) -> Stretch {
        let (begin, end) = (self.x(from), self.x(to));
        let width = (end - begin).max(LEAST);
        // One at the very end has the minimum width and ends with the timeline.
        let x = begin.min(self.right - width);
        let told = format!("{word} from {} to {}", utc(from), utc(to));
        Stretch { class, x: format!("{x:.1}"), width: format!("{width:.1}"), told }
    }
}

impl Timeline {
    /// The picture of some groups by their events since the rollout began, the newest first; nothing without groups.
    pub(super) fn of(
        groups: &[GroupCard],
        events: &[Arc<Event>],
        forecast: Option<&Forecast>,
        began: Timestamp,
        now: Timestamp,
    ) -> Option<Self> {
        if groups.is_empty() {
            return None;
        }
        // Without a forecast it ends with the last event.
        let last = events.iter().find(|event| state(event).is_some()).map(|event| event.at);
        let until = if forecast.is_some() { now } else { last.unwrap_or(now) };
        let right = if forecast.is_some() { MIDDLE } else { RIGHT };
        let behind = Scale { from: began, to: until, left: LEFT, right };
        let to_come = forecast.map(|forecast| ahead(forecast, groups, now)).unwrap_or_default();
        let ends = to_come.iter().filter_map(|plan| plan.span).map(|(_, to)| to).max();
        let before = Scale { from: now, to: ends.unwrap_or(now), left: MIDDLE, right: RIGHT };
        let rows: Vec<Row> = groups
            .iter()
            .enumerate()
            .map(|(n, group)| {
                let plan = to_come.iter().find(|plan| plan.name == group.name);
                let mut stretches = past(&group.name, events, behind);
                let planned = plan.and_then(|plan| plan.span);
                stretches.extend(planned.map(|(from, to)| before.stretch("planned", "planned", from, to)));
                Row {
                    name: group.name.clone(),
                    shown: shortened(&group.name, LONGEST_NAME),
                    y: MARGIN + n * ROW,
                    stretches,
                    reason: plan.map(|plan| shortened(plan.reason, LONGEST_REASON)).unwrap_or_default(),
                }
            })
            .collect();
        let is_there = |class: &str| rows.iter().flat_map(|row| &row.stretches).any(|one| one.class == class);
        let floor = MARGIN + rows.len() * ROW;
        Some(Self {
            height: floor + MARGIN,
            floor,
            legend: LEGEND.into_iter().filter(|(class, _)| is_there(class)).collect(),
            rows,
            begin: Mark::of(began),
            end: if forecast.is_some() { ends.map(Mark::of) } else { Some(Mark::of(until)) },
            now: forecast.map(|_| MIDDLE as u64),
        })
    }
}

/// The state into which an event brought a group.
fn state(event: &Event) -> Option<&str> {
    let state = event.event_type.strip_prefix("group.")?;
    ["active", "succeeded", "halted", "scheduled"].contains(&state).then_some(state)
}

/// The past of a group, from the events of all groups, newest first.
fn past(name: &str, events: &[Arc<Event>], scale: Scale) -> Vec<Stretch> {
    let of_group = |event: &&Arc<Event>| event.subject.strip_prefix("group/") == Some(name);
    let changes: Vec<(Timestamp, &str)> =
        events.iter().rev().filter(of_group).filter_map(|event| Some((event.at, state(event)?))).collect();
    let ends = changes.iter().skip(1).copied().map(Some).chain([None]);
    let stretch = |((from, state), next): (&(Timestamp, &str), Option<(Timestamp, &str)>)| {
        let (to, next) = next.unwrap_or((scale.to, ""));
        match (*state, next) {
            ("active", "succeeded") => Some(scale.stretch("upgraded", "active", *from, to)),
            ("active", _) => Some(scale.stretch("in_flight", "active", *from, to)),
            ("halted", _) => Some(scale.stretch("failed", "halted", *from, to)),
            _ => None,
        }
    };
    changes.iter().zip(ends).filter_map(stretch).collect()
}

/// The forecast of a group.
struct Planned<'f> {
    name: &'f str,
    span: Option<(Timestamp, Timestamp)>,
    reason: &'f str,
}

fn ahead<'f>(forecast: &'f Forecast, groups: &[GroupCard], now: Timestamp) -> Vec<Planned<'f>> {
    let planned = forecast.groups.iter().map(|coming| {
        let is_open = groups.iter().any(|group| group.name == coming.name && group.state == "active");
        let opens = coming.opens.map(|opens| opens.0).or((is_open && coming.done.is_some()).then_some(now));
        let span = opens.map(|opens| {
            let opens = opens.max(now);
            (opens, coming.done.map_or(opens, |done| done.0.max(opens)))
        });
        let reason = if span.is_some() { "" } else { coming.instead.as_str() };
        Planned { name: &coming.name, span, reason }
    });
    planned.collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use refit_proto::rollouts::v1 as wire;

    use super::super::forecast::Coming;
    use super::super::format::{Moment, Prose};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn groups(states: &[(&str, &str)]) -> Vec<GroupCard> {
        let card = |(name, state): &(&str, &str)| {
            let group = wire::Group { name: (*name).into(), state: (*state).into(), ..Default::default() };
            GroupCard::of(&group, at(100))
        };
        states.iter().map(card).collect()
    }

    fn event(second: i64, group: &str, state: &str) -> Arc<Event> {
        let event = Event::new(&format!("group.{state}"), "server", format!("group/{group}"), "");
        Arc::new(Event { at: at(second), ..event })
    }

    fn coming(name: &str, opens: Option<i64>, done: Option<i64>, instead: &str) -> Coming {
        Coming {
            name: name.into(),
            opens: opens.map(|second| Moment(at(second))),
            local: String::new(),
            done: done.map(|second| Moment(at(second))),
            takes: 1,
            to_do: 1,
            have_it: 0,
            held: 0,
            away: 0,
            at_once: String::new(),
            after: String::new(),
            instead: instead.into(),
        }
    }

    fn drawn(row: &Row) -> Vec<(&str, &str, &str)> {
        row.stretches.iter().map(|one| (one.class, one.x.as_str(), one.width.as_str())).collect()
    }

    #[test]
    fn what_was_is_left_of_now_and_what_comes_is_right_of_it() {
        let groups = groups(&[("canary", "succeeded"), ("web", "active"), ("db", "scheduled")]);
        let events = [
            event(60, "web", "paused"),
            event(50, "web", "active"),
            event(50, "canary", "succeeded"),
            event(0, "canary", "active"),
        ];
        let forecast = Forecast {
            blocked: Vec::new(),
            groups: vec![
                coming("web", None, Some(300), "is open now"),
                coming("db", Some(200), Some(300), ""),
            ],
            notes: Vec::new(),
            ends: Prose::default(),
        };
        let line = Timeline::of(&groups, &events, Some(&forecast), at(0), at(100)).unwrap();
        assert_eq!(drawn(&line.rows[0]), [("upgraded", "150.0", "150.0")]);
        assert_eq!(
            drawn(&line.rows[1]),
            [("in_flight", "300.0", "150.0"), ("planned", "450.0", "300.0")],
            "until now, and from now on"
        );
        assert_eq!(drawn(&line.rows[2]), [("planned", "600.0", "150.0")]);
        assert_eq!((line.now, line.end), (Some(450), Some(Mark::of(at(300)))));
        assert_eq!(
            line.legend.iter().map(|(class, _)| *class).collect::<Vec<_>>(),
            ["upgraded", "in_flight", "planned"]
        );
    }

    #[test]
    fn a_halt_lasts_until_somebody_runs_the_group_and_says_why_nothing_is_planned() {
        let halted = groups(&[("web", "halted")]);
        let forecast = |instead| Forecast {
            blocked: Vec::new(),
            groups: vec![coming("web", None, None, instead)],
            notes: Vec::new(),
            ends: Prose::default(),
        };
        let events = [event(50, "web", "halted"), event(0, "web", "active")];
        let line =
            Timeline::of(&halted, &events, Some(&forecast("halted: 3 of 24")), at(0), at(100)).unwrap();
        assert_eq!(drawn(&line.rows[0]), [("in_flight", "150.0", "150.0"), ("failed", "300.0", "150.0")]);
        assert_eq!((line.rows[0].reason.as_str(), line.end), ("halted: 3 of 24", None));
        assert_eq!(
            line.rows[0].stretches[1].told,
            "halted from 1970-01-01 00:00:50 UTC to 1970-01-01 00:01:40 UTC"
        );

        // It ends with what happened last, however long ago that is.
        let events = [&[event(100, "web", "succeeded"), event(75, "web", "active")][..], &events].concat();
        let line = Timeline::of(&groups(&[("web", "succeeded")]), &events, None, at(0), at(9000)).unwrap();
        assert_eq!(
            drawn(&line.rows[0]),
            [("in_flight", "150.0", "300.0"), ("failed", "450.0", "150.0"), ("upgraded", "600.0", "150.0")]
        );
        assert_eq!((line.now, line.end), (None, Some(Mark::of(at(100)))));
    }

    #[test]
    fn what_is_short_is_seen_and_inside() {
        let events = [event(100, "web", "active")];
        let line = Timeline::of(&groups(&[("web", "active")]), &events, None, at(0), at(100)).unwrap();
        assert_eq!(drawn(&line.rows[0]), [("in_flight", "747.0", "3.0")]);
        assert!(Timeline::of(&[], &events, None, at(0), at(100)).is_none());
    }
}
