//! One group as the rollout pages show it: state, progress bar, counts and window. Built from the wire status.

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use refit_convert::{blocked_by_from_wire, blocked_by_in_words, moment};
use refit_proto::rollouts::v1 as wire;
use refit_proto::rollouts::v1::GroupState;

use super::failed_agent::ShownFailure;
use super::format::{Prose, in_words};

/// How wide a bar is, in its own measure.
const WHOLE: u64 = 1000;
/// The minimum width, so that small counts are visible.
const LEAST: u64 = 6;

/// A group as pages show it, in the words of `refitctl autoupdate status`.
pub(super) struct GroupCard {
    pub(super) name: String,
    pub(super) state: String,
    /// The state, and since or until when.
    pub(super) stands: Prose,
    pub(super) requires: Vec<String>,
    pub(super) counts: String,
    pub(super) segments: Vec<Segment>,
    pub(super) limit: u32,
    /// Where the limit of hosts in flight is on the bar.
    pub(super) limit_at: Option<u64>,
    pub(super) upgraded: u32,
    pub(super) members: u32,
    pub(super) window: Option<Prose>,
    pub(super) waiting: String,
    pub(super) paused: bool,
    /// Whether nobody in it can be upgraded, so that it may be declared done.
    pub(super) is_stuck: bool,
    /// Whether running it would do anything.
    pub(super) can_run: bool,
    pub(super) shares: Vec<(&'static str, &'static str, u32)>,
    /// What the bar does not show.
    pub(super) further: Vec<String>,
    /// A host that it halted for.
    pub(super) failure: Option<ShownFailure>,
}

/// A part of a bar.
pub(super) struct Segment {
    pub(super) class: &'static str,
    pub(super) name: &'static str,
    pub(super) count: u32,
    pub(super) x: u64,
    pub(super) width: u64,
}

impl GroupCard {
    pub(super) fn of(group: &wire::Group, now: Timestamp) -> Self {
        let ended = group.upgraded + group.failed + group.timed_out;
        let unchanged = group.members.saturating_sub(ended + group.in_flight);
        let shares = vec![
            ("upgraded", "upgraded", group.upgraded),
            ("failed", "failed", group.failed),
            ("timed_out", "timed out", group.timed_out),
            ("in_flight", "in flight", group.in_flight),
            ("unchanged", "unchanged", unchanged),
        ];
        let reach = u64::from(ended.saturating_add(group.limit).min(group.members));
        let limit_at = (reach * WHOLE).checked_div(u64::from(group.members));
        Self {
            name: group.name.clone(),
            state: group.state_text(),
            stands: stands(group, now),
            requires: group.requires.clone(),
            counts: counts(group),
            segments: segments(&shares, group.members),
            limit: group.limit,
            limit_at: limit_at.filter(|_| group.known_state() == GroupState::Active || group.in_flight > 0),
            upgraded: group.upgraded,
            members: group.members,
            window: window(group, now),
            waiting: blocked_by_in_words(group, now),
            paused: group.paused_at.is_some(),
            is_stuck: is_stuck(group),
            can_run: group.known_state() != GroupState::Succeeded
                || group.upgraded < group.members
                || group.newcomers > 0,
            further: further(group),
            failure: group.failure.as_ref().map(ShownFailure::from),
            shares,
        }
    }
}

fn segments(shares: &[(&'static str, &'static str, u32)], members: u32) -> Vec<Segment> {
    let (mut x, mut before) = (0, 0);
    let shown = shares.iter().filter(|(_, _, count)| *count > 0);
    let mut segments: Vec<Segment> = shown
        .map(|(class, name, count)| {
            let until = |hosts: u32| (u64::from(hosts) * WHOLE).checked_div(u64::from(members)).unwrap_or(0);
            let width = (until(before + count) - until(before)).max(LEAST);
            before += count;
            x += width;
            Segment { class, name, count: *count, x: x - width, width }
        })
        .collect();
    // The minimum widths are taken from the widest segment.
    let surplus = x.saturating_sub(WHOLE);
    let widest = (0..segments.len()).max_by_key(|n| segments[*n].width);
    if let Some(widest) = widest {
        segments[widest].width = segments[widest].width.saturating_sub(surplus);
        segments.iter_mut().skip(widest + 1).for_each(|segment| segment.x -= surplus);
    }
    segments
}

fn stands(group: &wire::Group, now: Timestamp) -> Prose {
    let with = |word: &str, at: Option<Timestamp>| match at {
        Some(at) => Prose::default().text(word).text(" ").time(at),
        None => Prose::default().text(word),
    };
    match group.known_state() {
        GroupState::Scheduled if moment(group.opens_at).is_some_and(|opens| opens <= now) => {
            with("scheduled", None)
        }
        GroupState::Scheduled => with("scheduled for", moment(group.opens_at)),
        GroupState::Active => with("active since", moment(group.since)),
        GroupState::Succeeded if group.marked_done_at.is_some() => {
            let marked = with("marked done at", moment(group.marked_done_at));
            marked.text(" by ").text(&group.marked_done_by)
        }
        _ => with(&format!("{} at", group.state_text()), moment(group.since)),
    }
}

fn is_stuck(group: &wire::Group) -> bool {
    let reason = group.blocked_by.as_ref().and_then(blocked_by_from_wire);
    reason.is_some_and(|reason| reason.is_stuck())
}

fn counts(group: &wire::Group) -> String {
    let counts = [
        format!("{}/{} upgraded", group.upgraded, group.members),
        format!("{} in flight (at most {})", group.in_flight, group.limit),
        format!("{} failed", group.failed),
        format!("{} timed out", group.timed_out),
    ];
    counts.into_iter().chain(further(group)).collect::<Vec<_>>().join(", ")
}

fn further(group: &wire::Group) -> Vec<String> {
    let further = [
        (group.held, "held"),
        (group.away, "away"),
        (group.newcomers, "newcomers"),
        (group.removed, "removed"),
    ];
    further.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
}

/// The window in which hosts may start; none for a group that has halted or finished.
fn window(group: &wire::Group, now: Timestamp) -> Option<Prose> {
    let is_over = match group.known_state() {
        GroupState::Halted => true,
        GroupState::Succeeded => group.newcomers == 0,
        _ => false,
    };
    let (opens, closes) = (moment(group.opens_at)?, moment(group.closes_at)?);
    (!is_over).then(|| {
        let by_hand = if group.by_hand { " (by hand)" } else { "" };
        hours(opens, closes, Some(&group.timezone), now).text(by_hand)
    })
}

/// When a window is open, in its own time zone and in the reader's. A weekday is shown with its time zone.
pub(super) fn hours(opens: Timestamp, closes: Timestamp, zone: Option<&str>, now: Timestamp) -> Prose {
    let (verb, edge) = if opens <= now { ("open until", closes) } else { ("opens", opens) };
    let local = zone.and_then(|zone| {
        let zone = TimeZoneDatabase::bundled().get(zone).ok()?;
        Some(edge.to_zoned(zone).strftime("%a %Y-%m-%d %H:%M %Q, ").to_string())
    });
    let said = Prose::default().text(&format!("{verb} {}", local.unwrap_or_default()));
    said.time(edge).text(&format!(" ({})", in_words(edge, now)))
}

/// The status of the whole rollout.
pub(super) fn status(rollout: &wire::Rollout, now: Timestamp) -> Prose {
    match (rollout.enabled, moment(rollout.paused_at)) {
        (false, _) => Prose::default().text("disabled"),
        (true, Some(at)) => {
            Prose::default().text("paused since ").time(at).text(&format!(" ({})", in_words(at, now)))
        }
        (true, None) => Prose::default().text(&of_groups(&rollout.groups)),
    }
}

fn of_groups(groups: &[wire::Group]) -> String {
    let is = |state: GroupState| move |group: &&wire::Group| group.known_state() == state;
    let halted: Vec<&str> =
        groups.iter().filter(is(GroupState::Halted)).map(|group| group.name.as_str()).collect();
    let is_blocked = |group: &wire::Group| group.blocked_by.is_some() || !group.waiting.is_empty();
    let moves = |group: &wire::Group| {
        group.known_state() == GroupState::Active && !is_blocked(group) || group.in_flight > 0
    };
    match groups {
        [] => "enabled".into(),
        _ if !halted.is_empty() => format!("halted in {}", halted.join(", ")),
        _ if groups.iter().all(|group| is(GroupState::Succeeded)(&group)) => "done".into(),
        _ if groups.iter().any(moves) => "rolling out".into(),
        _ => "waiting".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> wire::Group {
        wire::Group { name: "prod".into(), state: "active".into(), members: 1000, ..Default::default() }
    }

    #[test]
    fn a_bar_is_never_longer_than_it_is_and_shows_what_is_rare() {
        let rare = wire::Group { upgraded: 998, failed: 1, timed_out: 1, limit: 100, ..group() };
        let card = GroupCard::of(&rare, Timestamp::UNIX_EPOCH);
        let ends = card.segments.last().map(|last| last.x + last.width);
        assert_eq!(ends, Some(WHOLE));
        assert!(card.segments.iter().all(|segment| segment.width >= LEAST), "a failure can be seen");
        assert_eq!(card.limit_at, Some(WHOLE), "no more than there are");
        let thirds = wire::Group { members: 3, upgraded: 1, failed: 1, ..group() };
        let card = GroupCard::of(&thirds, Timestamp::UNIX_EPOCH);
        assert_eq!(card.segments.last().map(|last| last.x + last.width), Some(WHOLE), "nothing is left over");
        let begun = wire::Group { upgraded: 100, in_flight: 50, limit: 100, ..group() };
        let card = GroupCard::of(&begun, Timestamp::UNIX_EPOCH);
        assert_eq!((card.limit_at, card.segments[1].x, card.segments[1].width), (Some(200), 100, 50));
        assert_eq!(
            GroupCard::of(&wire::Group { members: 0, ..group() }, Timestamp::UNIX_EPOCH).limit_at,
            None
        );
    }

    #[test]
    fn the_whole_is_told_by_what_matters_most() {
        let of = |states: &[&str]| {
            let groups = states.iter().map(|state| wire::Group { state: (*state).into(), ..group() });
            of_groups(&groups.collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), "enabled");
        assert_eq!(of(&["succeeded", "halted", "active"]), "halted in prod");
        assert_eq!(of(&["succeeded", "active", "scheduled"]), "rolling out");
        assert_eq!(of(&["succeeded", "scheduled"]), "waiting");
        assert_eq!(of(&["succeeded", "succeeded"]), "done");
        let held_up = wire::Group { waiting: "paused".into(), ..group() };
        assert_eq!(of_groups(&[held_up]), "waiting");
        let blocked = wire::Group { blocked_by: Some(wire::BlockedBy { reason: None }), ..group() };
        assert_eq!(of_groups(&[blocked]), "waiting", "whatever the reason");
        assert_eq!(of(&["succeeded", "resting"]), "waiting", "a state that is not known is not the end");
    }

    #[test]
    fn only_what_has_something_left_is_offered_to_be_run() {
        let done = wire::Group { state: "succeeded".into(), upgraded: 1000, ..group() };
        let can_run = |group: wire::Group| GroupCard::of(&group, Timestamp::UNIX_EPOCH).can_run;
        assert!(!can_run(done.clone()));
        assert!(can_run(wire::Group { upgraded: 999, failed: 1, ..done.clone() }));
        assert!(can_run(wire::Group { newcomers: 1, ..done }));
        assert!(can_run(group()));
    }

    #[test]
    fn a_group_is_told_of_as_on_the_command_line() {
        let now: Timestamp = "2026-11-16T00:17:49Z".parse().unwrap();
        let stamp = |text: &str| Some(crate::rpc::timestamp(text.parse().unwrap()));
        let waits = wire::Group {
            state: "scheduled".into(),
            opens_at: stamp("2026-11-21T02:00:00Z"),
            closes_at: stamp("2026-11-21T03:00:00Z"),
            timezone: "Europe/Berlin".into(),
            newcomers: 4,
            members: 0,
            ..group()
        };
        let card = GroupCard::of(&waits, now);
        let plain = |prose: &Prose| {
            let (mut text, mut inside) = (String::new(), false);
            for letter in prose.to_string().chars() {
                match letter {
                    '<' => inside = true,
                    '>' => inside = false,
                    letter if !inside => text.push(letter),
                    _ => {}
                }
            }
            text
        };
        assert_eq!(plain(&card.stands), "scheduled for 2026-11-21 02:00:00 UTC");
        assert_eq!(
            card.window.as_ref().map(plain).as_deref(),
            Some("opens Sat 2026-11-21 03:00 Europe/Berlin, 2026-11-21 02:00:00 UTC (in 5 days)")
        );
        let in_utc = GroupCard::of(&wire::Group { timezone: "UTC".into(), ..waits }, now);
        assert_eq!(
            in_utc.window.as_ref().map(plain).as_deref(),
            Some("opens Sat 2026-11-21 02:00 UTC, 2026-11-21 02:00:00 UTC (in 5 days)")
        );
        assert_eq!(card.counts, "0/0 upgraded, 0 in flight (at most 0), 0 failed, 0 timed out, 4 newcomers");
    }
}
