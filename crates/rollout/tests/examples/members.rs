//! Membership of groups, and the limit of hosts in flight.

use refit_types::{Group, GroupState, HostLimit};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, blocked_by, cluster, cluster_of, group, host, is_told, pass, record,
};
use crate::world::HostStep;

#[test]
fn no_more_start_than_the_limit_rounded_up_and_the_lowest_uuids_first() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(25).unwrap(), ..group(0) }], 5);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!([0, 1, 2, 3, 4].map(|number| is_told(&world, number)), [true, true, false, false, false]);
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(is_told(&world, 2) && !is_told(&world, 3));
}

#[test]
fn zero_percent_in_flight_starts_nobody() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::ZERO, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!((record(&world, 0).members, record(&world, 0).in_flight), (2, 0));
    assert_eq!(blocked_by(&world, 0).unwrap(), "max_in_flight is 0%: no host may start");
}

#[test]
fn a_host_that_was_heard_until_just_now_is_a_member() {
    let mut world = cluster_of(&[1], vec![group(0)], 4);
    pass(&mut world, UNTIL_MIDNIGHT - 30);
    host(&mut world, 1, HostStep::Leave);
    pass(&mut world, 1);
    host(&mut world, 0, HostStep::Leave);
    host(&mut world, 2, HostStep::Leave);
    pass(&mut world, 0);
    assert_eq!(world.servers[0].engine.view().progress(0).newcomers, 1);
    pass(&mut world, 29);
    let progress = world.servers[0].engine.view().progress(0);
    assert_eq!((record(&world, 0).members, progress.away, progress.newcomers), (3, 2, 0));
    (0..3).for_each(|number| host(&mut world, number, HostStep::Return));
    pass(&mut world, 1);
    assert_eq!([0, 1, 2, 3].map(|number| is_told(&world, number)), [true, false, true, true]);
}

#[test]
fn held_hosts_take_no_slot_and_do_not_block() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(1).unwrap(), ..group(0) }], 4);
    host(&mut world, 0, HostStep::Pin { version: 0 });
    host(&mut world, 1, HostStep::Disable);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!([0, 1, 2, 3].map(|number| is_told(&world, number)), [false, false, true, false]);
    host(&mut world, 2, HostStep::Hold);
    pass(&mut world, 1);
    assert!(!is_told(&world, 2) && is_told(&world, 3), "the slot goes to the next");
    host(&mut world, 3, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!(
        (record(&world, 0).state, world.servers[0].engine.view().progress(0).held),
        (GroupState::Succeeded, 3)
    );
}

#[test]
fn a_member_that_is_removed_gives_its_slot_away() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(1).unwrap(), ..group(0) }], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Remove);
    pass(&mut world, 1);
    let record = record(&world, 0);
    assert_eq!((record.members, record.removed, record.in_flight, is_told(&world, 1)), (3, 1, 1, true));
}

#[test]
fn a_few_members_that_are_away_are_left_behind_after_ten_minutes() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(10).unwrap(), ..group(0) }], 10);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 9, HostStep::Leave);
    for number in 0..9 {
        host(&mut world, number, HostStep::Upgrade);
        pass(&mut world, 1);
    }
    assert_eq!(blocked_by(&world, 0).unwrap(), "waiting for 1 of 10 members that are away");
    pass(&mut world, 590);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    pass(&mut world, 1);
    assert_eq!(record(&world, 0).state, GroupState::Succeeded);
}

#[test]
fn too_many_members_that_are_away_are_waited_for() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(10).unwrap(), ..group(0) }], 9);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 8, HostStep::Leave);
    for number in 0..8 {
        host(&mut world, number, HostStep::Upgrade);
        pass(&mut world, 1);
    }
    pass(&mut world, 2 * HOUR);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    host(&mut world, 8, HostStep::Return);
    pass(&mut world, 1);
    assert!(is_told(&world, 8));
}
