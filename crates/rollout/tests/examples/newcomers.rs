//! Hosts that match a group after its members were recorded: they start at once, and count from the next window on.

use refit_types::{Group, GroupState, HostLimit};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, cluster, group, host, is_halted, is_told, join, operator, pass, record, upgrade_of,
};
use crate::world::{HostStep, OperatorStep};

#[test]
fn newcomers_start_at_once_and_count_from_the_next_window_on() {
    let mut world = cluster(vec![group(0)], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    join(&mut world, 2, 0);
    pass(&mut world, 1);
    assert!(is_told(&world, 2), "the window is open, and a slot is free");
    let open = record(&world, 0);
    assert_eq!((open.members, open.in_flight, open.newcomers_in_flight()), (2, 2, 1));
    // The group does not wait for it.
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).in_flight), (GroupState::Succeeded, 1));
    host(&mut world, 2, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).upgraded, record(&world, 0).in_flight), (2, 0));
    pass(&mut world, 24 * HOUR);
    let next = record(&world, 0);
    assert_eq!((next.members, next.upgraded, next.state), (3, 3, GroupState::Succeeded));
}

#[test]
fn newcomers_are_under_the_same_limit_and_behind_the_members() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(50).unwrap(), ..group(0) }], 4);
    pass(&mut world, UNTIL_MIDNIGHT);
    (4..8).for_each(|number| join(&mut world, number, 0));
    pass(&mut world, 1);
    let told = |world: &_| (0..8).filter(|number| is_told(world, *number)).collect::<Vec<_>>();
    assert_eq!(told(&world), [0, 1]);
    (0..2).for_each(|number| host(&mut world, number, HostStep::Upgrade));
    pass(&mut world, 1);
    assert_eq!((told(&world)[2..].to_vec(), record(&world, 0).in_flight), (vec![2, 3], 2));
    (2..4).for_each(|number| host(&mut world, number, HostStep::Upgrade));
    pass(&mut world, 1);
    let after = record(&world, 0);
    assert_eq!((told(&world)[4..].to_vec(), after.in_flight), (vec![4, 5], 2), "two slots of four members");
    assert_eq!(after.state, GroupState::Succeeded);
}

#[test]
fn a_newcomer_that_fails_halts_nobody_and_is_tried_again_in_the_next_window() {
    let mut world = cluster(vec![group(0)], 1);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    join(&mut world, 1, 0);
    pass(&mut world, 1);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert_eq!((is_halted(&world, 0), record(&world, 0).failed, record(&world, 0).in_flight), (false, 0, 0));
    pass(&mut world, HOUR);
    assert_eq!(upgrade_of(&world, 1).attempt, 1, "once in a window");
    pass(&mut world, 23 * HOUR);
    assert_eq!((record(&world, 0).members, upgrade_of(&world, 1).attempt), (2, 2));
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert!(is_halted(&world, 0), "now it counts");
}

#[test]
fn a_newcomer_in_flight_when_the_next_window_opens_keeps_its_slot() {
    let slow = Group { jitter_seconds: 3600, timeout_seconds: 900, ..group(0) };
    let mut world = cluster(vec![slow], 2);
    host(&mut world, 1, HostStep::Hold);
    pass(&mut world, UNTIL_MIDNIGHT);
    join(&mut world, 2, 0);
    pass(&mut world, 1);
    host(&mut world, 2, HostStep::Acknowledge);
    assert_eq!((record(&world, 0).in_flight, record(&world, 0).newcomers_in_flight()), (2, 1));
    operator(&mut world, OperatorStep::Run { group: 0 });
    pass(&mut world, 1);
    let next = record(&world, 0);
    assert_eq!((next.members, next.in_flight, next.newcomers_in_flight()), (3, 2, 0));
    assert_eq!(upgrade_of(&world, 2).attempt, 1);
    host(&mut world, 2, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).upgraded, record(&world, 0).in_flight), (1, 1));
}

#[test]
fn a_newcomer_that_is_removed_gives_its_slot_back() {
    let mut world = cluster(vec![group(0)], 1);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    join(&mut world, 1, 0);
    pass(&mut world, 1);
    host(&mut world, 1, HostStep::Remove);
    pass(&mut world, 1);
    let record = record(&world, 0);
    assert_eq!(
        (record.in_flight, record.newcomers_in_flight(), record.members, record.removed),
        (0, 0, 1, 0)
    );
}
