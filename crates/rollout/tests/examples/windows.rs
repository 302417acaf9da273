//! Maintenance windows: when hosts start, and what happens when a window closes.

use jiff::{SignedDuration, Timestamp};
use refit_types::{Group, GroupState, HostLimit, WeeklyWindow};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, blocked_by, cluster, every_night, group, host, is_told, join, operator, pass,
    record, upgrade_of,
};
use crate::world::{HostStep, OperatorStep, World};

#[test]
fn a_group_opens_in_its_window_and_succeeds_once_all_have_the_version() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT - 1);
    assert!(!is_told(&world, 0) && record(&world, 0).state == GroupState::Scheduled);
    pass(&mut world, 1);
    assert!(is_told(&world, 0) && record(&world, 0).state == GroupState::Active);
    (0..3).for_each(|number| host(&mut world, number, HostStep::Upgrade));
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).upgraded), (GroupState::Succeeded, 3));
    assert_eq!(blocked_by(&world, 0), None);
}

#[test]
fn a_window_counts_the_hours_of_its_zone() {
    let berlin = WeeklyWindow { timezone: "Europe/Berlin".parse().unwrap(), ..every_night() };
    let mut world = cluster(vec![Group { window: berlin, ..group(0) }], 1);
    pass(&mut world, UNTIL_MIDNIGHT - 2 * HOUR - 1);
    assert!(!is_told(&world, 0));
    pass(&mut world, 1);
    assert!(is_told(&world, 0));
    let opened: Timestamp = "2026-07-01T22:00:00Z".parse().unwrap();
    assert_eq!(record(&world, 0).window.unwrap().end, opened + SignedDuration::from_hours(4));
}

#[test]
fn a_start_that_nobody_acknowledged_is_taken_back_when_the_window_closes() {
    let slow = Group { jitter_seconds: 3600, timeout_seconds: 900, ..group(0) };
    let mut world =
        cluster(vec![Group { window: WeeklyWindow { window_hours: 1, ..every_night() }, ..slow }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, HOUR);
    assert!(is_told(&world, 0) && !is_told(&world, 1));
    assert!(upgrade_of(&world, 0).start_time.is_some() && upgrade_of(&world, 1).start_time.is_none());
    let record = record(&world, 0);
    assert_eq!((record.in_flight, record.failed, record.timed_out), (1, 0, 0));
}

#[test]
fn strangers_and_hosts_without_a_group_follow_the_policy() {
    let mut world = cluster(vec![group(0)], 0);
    join(&mut world, 0, 5);
    let answers = |world: &World| {
        let engine = &world.servers[0].engine;
        [None, Some(world.ids[0])].map(|host| engine.view().answer(host, world.now).auto_update)
    };
    assert_eq!(answers(&world), [false, false]);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(answers(&world), [true, true]);
    pass(&mut world, 4 * HOUR);
    assert_eq!(answers(&world), [false, false]);
}

/// Each day has a window of its own, and what nobody acknowledged does not outlive that.
#[test]
fn a_rollout_goes_on_over_midnight_in_a_window_of_all_hours() {
    let always = WeeklyWindow { window_hours: 24, ..every_night() };
    let half = HostLimit::percent(50).unwrap();
    let group = Group { window: always, max_in_flight: half, timeout_seconds: 900, ..group(0) };
    let mut world = cluster(vec![group], 4);
    operator(&mut world, OperatorStep::Switch { on: false });
    pass(&mut world, UNTIL_MIDNIGHT - 60);
    operator(&mut world, OperatorStep::Switch { on: true });
    pass(&mut world, 0);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, 59);
    let (before, started) = (record(&world, 0), upgrade_of(&world, 0));
    assert_eq!([0, 1, 2, 3].map(|number| is_told(&world, number)), [true, true, false, false]);

    pass(&mut world, 1);
    let after = record(&world, 0);
    assert_eq!(after.window.unwrap().start, before.window.unwrap().end, "the next day's follows at once");
    assert_eq!((after.state, after.members, after.in_flight), (GroupState::Active, 4, 2));
    assert_eq!(upgrade_of(&world, 0), started, "it is on its way, and has not lost a second");
    assert_eq!((upgrade_of(&world, 1).attempt, started.attempt), (2, 1), "it is told anew");
    assert_eq!([0, 1, 2, 3].map(|number| is_told(&world, number)), [true, true, false, false]);

    for number in 0..4 {
        host(&mut world, number, HostStep::Upgrade);
        pass(&mut world, 1);
    }
    let done = record(&world, 0);
    assert_eq!((done.state, done.upgraded), (GroupState::Succeeded, 4));
    assert_eq!((done.failed, done.timed_out), (0, 0), "nothing was counted against anyone");
}
