//! Validates the order of groups: rejects cycles, and chains that take longer than a week.

use std::collections::BTreeMap;

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Span;
use super::config::{Group, GroupName};

/// The year over whose windows chains are followed: always the same, so that every server gives the same
/// answer at any time.
const FIRST_DAY: Date = date(2026, 1, 1);
const DAYS: i64 = 365;
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The circles of groups that require each other, with the position of the first of each and the error in words. No two
/// have a requirement in common. Works on groups with other errors, too: of groups with the same name it takes what any of
/// them requires; unknown names and a group that requires itself are told elsewhere.
pub(super) fn cycles(groups: &[(usize, &Group)]) -> Vec<(usize, String)> {
    let mut names: Vec<(usize, &GroupName)> = Vec::new();
    for (place, group) in groups {
        if names.iter().all(|(_, known)| *known != &group.name) {
            names.push((*place, &group.name));
        }
    }
    let position = |name: &GroupName| names.iter().position(|(_, known)| *known == name);
    let mut requires: Vec<Vec<usize>> = vec![Vec::new(); names.len()];
    for (_, group) in groups {
        let Some(at) = position(&group.name) else { continue };
        requires[at].extend(group.requires.iter().filter_map(position).filter(|required| *required != at));
    }
    let mut found = Vec::new();
    while let Err(cycle) = in_order(&requires) {
        let path: Vec<&str> = cycle.iter().map(|n| names[*n].1.as_str()).collect();
        let first = cycle.iter().copied().min().unwrap_or_default();
        let problem = format!("the groups require each other in a circle: {}", path.join(" -> "));
        found.push((names[first].0, problem));
        for step in cycle.windows(2) {
            requires[step[0]].retain(|required| *required != step[1]);
        }
    }
    found
}

/// The chains of `requires` that take longer than a week, with the position of their last group and the error in words.
/// All names must be known and distinct, and there must be no circle.
pub(super) fn long_chains(groups: &[Group]) -> Vec<(usize, String)> {
    let positions: BTreeMap<&GroupName, usize> =
        groups.iter().enumerate().map(|(n, group)| (&group.name, n)).collect();
    let requires: Vec<Vec<usize>> = groups
        .iter()
        .map(|group| group.requires.iter().filter_map(|name| positions.get(name).copied()).collect())
        .collect();
    in_order(&requires).map(|order| too_long(groups, &requires, &order)).unwrap_or_default()
}

fn told(groups: &[Group], path: &[usize]) -> String {
    path.iter().map(|n| groups[*n].name.as_str()).collect::<Vec<_>>().join(" -> ")
}

/// The groups with each behind all that it requires, or the groups of a cycle, the first of them also last.
fn in_order(requires: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < requires.len() {
        let before = order.len();
        for (n, required) in requires.iter().enumerate() {
            if !order.contains(&n) && required.iter().all(|one| order.contains(one)) {
                order.push(n);
            }
        }
        if order.len() == before {
            return Err(cycle_outside(requires, &order));
        }
    }
    Ok(order)
}

/// Every group that could not be ordered requires another such one: following them must come back.
fn cycle_outside(requires: &[Vec<usize>], ordered: &[usize]) -> Vec<usize> {
    let left = |n: &usize| !ordered.contains(n);
    let Some(first) = (0..requires.len()).find(|n| left(n)) else { return Vec::new() };
    let mut path = vec![first];
    loop {
        let Some(next) = path.last().and_then(|last| requires[*last].iter().copied().find(|n| left(n)))
        else {
            return path;
        };
        if let Some(back) = path.iter().position(|n| *n == next) {
            let mut cycle = path.split_off(back);
            // Told from the group that comes first in the document.
            let first = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or_default();
            cycle.rotate_left(first);
            cycle.push(cycle[0]);
            return cycle;
        }
        path.push(next);
    }
}

/// The end of a chain: when its last group opens, and the groups on the way there.
#[derive(Clone)]
struct Reached {
    at: Timestamp,
    path: Vec<usize>,
}

/// All windows are listed once. From each opening of each group that requires none, the others are walked
/// in order: a group begins with the latest of those that it requires if its window is open then, otherwise when it
/// next opens. That covers every chain at once, as a later start never leads to an earlier one. So 32 groups cost some 10,000 openings and, for each of
/// those of first groups, at most 32 binary searches.
fn too_long(groups: &[Group], requires: &[Vec<usize>], order: &[usize]) -> Vec<(usize, String)> {
    if requires.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let windows: Vec<Vec<Span>> = groups.iter().map(windows).collect();
    let mut worst: BTreeMap<usize, (SignedDuration, Timestamp, Reached)> = BTreeMap::new();
    for first in order.iter().copied().filter(|n| requires[*n].is_empty()) {
        let starts = windows[first].iter().map(|window| window.start);
        for start in starts.filter(|start| (year_start()..year_end()).contains(start)) {
            let mut reached: Vec<Option<Reached>> = vec![None; groups.len()];
            reached[first] = Some(Reached { at: start, path: vec![first] });
            for group in order.iter().copied().filter(|n| !requires[*n].is_empty()) {
                let before =
                    requires[group].iter().filter_map(|n| reached[*n].as_ref()).max_by_key(|one| one.at);
                let Some(before) = before else { continue };
                let Some(at) = begins(&windows[group], before.at) else { continue };
                let path = [&before.path[..], &[group]].concat();
                let took = by_the_clock(groups[group].window.timezone.zone(), start, at);
                if took <= WEEK {
                    reached[group] = Some(Reached { at, path });
                } else if worst.get(&group).is_none_or(|(known, ..)| took > *known) {
                    worst.insert(group, (took, start, Reached { at, path }));
                }
            }
        }
    }
    let utc = |at: Timestamp| at.strftime("%a %Y-%m-%d %H:%M UTC").to_string();
    let error = |(group, (_, start, end)): (usize, (SignedDuration, Timestamp, Reached))| {
        let problem = format!(
            "the chain {} takes longer than a week: begun on {}, it comes to {} on {}; at most 7 days are allowed",
            told(groups, &end.path),
            utc(start),
            groups[group].name,
            utc(end.at)
        );
        (group, problem)
    };
    worst.into_iter().map(error).collect()
}

/// How much later it is by clocks of that zone, so that a week in which they change is no longer than others.
fn by_the_clock(zone: &TimeZone, from: Timestamp, to: Timestamp) -> SignedDuration {
    zone.to_datetime(to).duration_since(zone.to_datetime(from))
}

fn year_end() -> Timestamp {
    year_start() + SignedDuration::from_hours(24 * DAYS)
}

fn year_start() -> Timestamp {
    TimeZone::UTC
        .to_ambiguous_timestamp(FIRST_DAY.at(0, 0, 0, 0))
        .compatible()
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When a group with those windows begins that may begin from that moment on: at once, if one is open. The same as
/// [`WeeklyWindow::first_from`](super::WeeklyWindow::first_from).
fn begins(windows: &[Span], from: Timestamp) -> Option<Timestamp> {
    let next = windows.partition_point(|window| window.start <= from);
    let is_open = next > 0 && windows.get(next - 1).is_some_and(|window| window.contains(from));
    if is_open { Some(from) } else { windows.get(next).map(|window| window.start) }
}

/// The windows of a group in the year, in the two weeks behind it, and those open when it begins.
fn windows(group: &Group) -> Vec<Span> {
    let dates =
        (-2..DAYS + 15).filter_map(|day| FIRST_DAY.checked_add(SignedDuration::from_hours(24 * day)).ok());
    group.window.openings_on(dates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Day, Days, WeeklyWindow};

    #[test]
    fn a_chain_is_followed_by_the_same_windows_as_a_plan() {
        let weekly = |days: &[Day], start_hour, window_hours, zone: &str| WeeklyWindow {
            days: Days::of(days.iter().copied()).unwrap(),
            start_hour,
            window_hours,
            timezone: zone.parse().unwrap(),
        };
        for window in [
            weekly(Day::ALL, 23, 4, "UTC"),
            weekly(Day::ALL, 2, 24, "Europe/Berlin"),
            weekly(&[Day::Sun], 23, 4, "America/New_York"),
            weekly(&[Day::Mon, Day::Thu], 0, 1, "Australia/Lord_Howe"),
        ] {
            let group = Group { window, ..Group::named("a".parse().unwrap()) };
            let windows = windows(&group);
            let mut at = year_start();
            while at < year_end() {
                assert_eq!(begins(&windows, at), group.window.first_from(at).map(|(from, _)| from), "{at}");
                at += SignedDuration::from_mins(37 * 7);
            }
        }
    }
}
