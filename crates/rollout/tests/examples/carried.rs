//! Hosts that are under way when another version is chosen: they keep slots until they settle.

use refit_types::{Group, GroupState, HostLimit};

use crate::cluster::{
    UNTIL_MIDNIGHT, cluster, cluster_of, group, host, is_told, join, operator, pass, record, upgrade_of,
};
use crate::world::{HostStep, OperatorStep};

fn half() -> Group {
    Group { max_in_flight: HostLimit::percent(50).unwrap(), timeout_seconds: 900, ..group(0) }
}

#[test]
fn hosts_under_way_to_the_old_version_take_slots_until_they_report() {
    let mut world = cluster_of(&[200, 1], vec![half()], 6);
    pass(&mut world, UNTIL_MIDNIGHT);
    (0..3).for_each(|number| host(&mut world, number, HostStep::Acknowledge));
    assert_eq!(record(&world, 0).in_flight, 3);
    operator(&mut world, OperatorStep::Version { version: 2 });
    pass(&mut world, 1);
    let told = |world: &_| (0..6).filter(|number| is_told(world, *number)).count();
    assert_eq!((record(&world, 0).members, record(&world, 0).in_flight, told(&world)), (6, 3, 0));
    // One is called off, one has failed, one has arrived where it was sent.
    host(&mut world, 0, HostStep::CallOff);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).in_flight, told(&world)), (3, 1), "its slot goes to the next");
    host(&mut world, 1, HostStep::FailOtherVersion);
    host(&mut world, 2, HostStep::Report { version: 1 });
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).in_flight, told(&world)), (3, 3));
}

#[test]
fn a_host_that_never_reports_has_its_slot_until_its_deadline_and_not_for_long() {
    let slow = Group { jitter_seconds: 3600, ..half() };
    for (first, until) in [(half(), 900), (slow, 900), (Group { timeout_seconds: 60, ..half() }, 660)] {
        let mut world = cluster(vec![first], 2);
        pass(&mut world, UNTIL_MIDNIGHT);
        host(&mut world, 0, HostStep::Leave);
        operator(&mut world, OperatorStep::Version { version: 2 });
        pass(&mut world, until - 1);
        assert_eq!((record(&world, 0).in_flight, is_told(&world, 1)), (1, false), "{until}");
        pass(&mut world, 1);
        assert_eq!((record(&world, 0).in_flight, is_told(&world, 1)), (1, true), "{until}");
        assert_eq!((record(&world, 0).failed, record(&world, 0).timed_out), (0, 0), "it is not counted");
    }
}

#[test]
fn a_host_that_runs_the_version_may_still_be_on_its_way_from_it() {
    let mut world = cluster(vec![half()], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    // Both run that version, and the first was told to go to another one.
    operator(&mut world, OperatorStep::Version { version: 0 });
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).in_flight, record(&world, 0).upgraded), (1, 1));
    assert_eq!(record(&world, 0).state, GroupState::Active, "it is not a success before that is known");
    host(&mut world, 0, HostStep::CallOff);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).upgraded), (GroupState::Succeeded, 2));
}

#[test]
fn a_host_under_way_that_comes_to_an_open_group_takes_a_slot_there() {
    let mut world = cluster(vec![half(), Group { requires: vec![group(0).name], ..group(1) }], 4);
    join(&mut world, 4, 1);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Relabel { role: 5 });
    operator(&mut world, OperatorStep::Version { version: 2 });
    pass(&mut world, 1);
    let before = record(&world, 0);
    assert_eq!((before.members, before.in_flight), (3, 2), "one is carried, and one started");
    host(&mut world, 0, HostStep::Relabel { role: 0 });
    pass(&mut world, 1);
    let after = record(&world, 0);
    assert_eq!((after.members, after.in_flight, after.newcomers_in_flight()), (3, 3, 1));
    assert!(upgrade_of(&world, 0).carried && !is_told(&world, 0));
    host(&mut world, 0, HostStep::CallOff);
    pass(&mut world, 1);
    assert_eq!(record(&world, 0).newcomers_in_flight(), 0);
}
