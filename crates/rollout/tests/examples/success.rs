//! What a success takes, why a group in which nobody can be upgraded does not go on, and the way around.

use refit_types::{Group, GroupState, HostLimit};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, blocked_by, cluster, group, host, is_told, join, operator, pass, record,
};
use crate::world::{HostStep, OperatorStep, World};

/// One group, and one that requires it with a host of its own: the last that joined.
fn two_groups(first: Group, hosts: u8) -> World {
    let mut world = cluster(vec![first, Group { requires: vec![group(0).name], ..group(1) }], hosts);
    join(&mut world, hosts, 1);
    world
}

#[test]
fn a_group_whose_members_are_all_held_does_not_succeed() {
    let mut world = two_groups(group(0), 3);
    (0..3).for_each(|number| host(&mut world, number, HostStep::Hold));
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: nobody could be upgraded, 3 held");
    assert_eq!((blocked_by(&world, 1).unwrap().as_str(), is_told(&world, 3)), ("waiting for g0", false));
    // It ends by itself when one is released.
    host(&mut world, 1, HostStep::Release);
    pass(&mut world, 1);
    assert!(is_told(&world, 1) && blocked_by(&world, 0).is_none());
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, is_told(&world, 3)), (GroupState::Succeeded, true));
}

#[test]
fn a_group_that_selects_nobody_does_not_succeed_and_goes_on_when_a_host_arrives() {
    let mut world = two_groups(group(0), 0);
    pass(&mut world, 1);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: selects no hosts", "also before its window");
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: selects no hosts");
    join(&mut world, 1, 0);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).members, is_told(&world, 1)), (1, true), "it is a member at once");
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, is_told(&world, 0)), (GroupState::Succeeded, true));
}

#[test]
fn a_group_in_which_all_failed_within_its_thresholds_does_not_succeed() {
    let lenient = Group { max_failed_before_halt: HostLimit::ALL, ..group(0) };
    let mut world = two_groups(lenient, 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    (0..2).for_each(|number| host(&mut world, number, HostStep::Fail));
    pass(&mut world, 1);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: nobody could be upgraded, 2 failed");
}

#[test]
fn a_group_that_may_be_empty_succeeds_without_anybody() {
    let mut world = two_groups(Group { allow_empty: true, ..group(0) }, 1);
    host(&mut world, 0, HostStep::Hold);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!((record(&world, 0).state, is_told(&world, 1)), (GroupState::Succeeded, true));
    let mut world = two_groups(Group { allow_empty: true, ..group(0) }, 0);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!((record(&world, 0).state, record(&world, 0).members), (GroupState::Succeeded, 0));
}

#[test]
fn an_operator_declares_a_group_done_for_this_version_only() {
    let mut world = two_groups(group(0), 2);
    (0..2).for_each(|number| host(&mut world, number, HostStep::Disable));
    pass(&mut world, UNTIL_MIDNIGHT);
    operator(&mut world, OperatorStep::MarkDone { group: 0 });
    pass(&mut world, 1);
    let marked = record(&world, 0);
    assert_eq!((marked.state.clone(), is_told(&world, 2)), (GroupState::Succeeded, true));
    assert_eq!(marked.marked_done().map(|marked| &*marked.by), Some("olga"));
    operator(&mut world, OperatorStep::Version { version: 2 });
    pass(&mut world, 1);
    assert_eq!(record(&world, 0).marked_done(), None);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: nobody could be upgraded, 2 held");
    assert_eq!(blocked_by(&world, 1).unwrap(), "waiting for g0");
}

#[test]
fn a_hold_is_about_one_version() {
    let mut world = two_groups(group(0), 1);
    host(&mut world, 0, HostStep::Hold);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: nobody could be upgraded, 1 held");
    operator(&mut world, OperatorStep::Version { version: 2 });
    pass(&mut world, 1);
    assert!(is_told(&world, 0), "it was held for another version");
    assert_eq!(record(&world, 0).state, GroupState::Active);
    host(&mut world, 0, HostStep::Hold);
    pass(&mut world, 1);
    assert_eq!((is_told(&world, 0), record(&world, 0).in_flight), (false, 0));
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: nobody could be upgraded, 1 held");
}

#[test]
fn a_hold_of_an_older_updater_is_about_the_version_that_it_was_asked_for() {
    let mut world = cluster(vec![group(0)], 1);
    host(&mut world, 0, HostStep::HoldSilently);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(blocked_by(&world, 0).unwrap(), "blocked: nobody could be upgraded, 1 held");
    operator(&mut world, OperatorStep::Version { version: 2 });
    pass(&mut world, 1);
    assert!(is_told(&world, 0));
}

#[test]
fn a_hold_of_an_earlier_attempt_does_not_end_this_one() {
    let mut world = cluster(vec![group(0)], 1);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::HoldOther { version: 1, earlier: true });
    pass(&mut world, 1);
    // An attempt before the first is none that was counted.
    assert_eq!(record(&world, 0).in_flight, 0);
    host(&mut world, 0, HostStep::Release);
    pass(&mut world, 1);
    host(&mut world, 0, HostStep::HoldOther { version: 1, earlier: true });
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).in_flight, is_told(&world, 0)), (1, true));
    pass(&mut world, HOUR);
}
