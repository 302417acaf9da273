//! Groups that require others.

use refit_types::{Group, GroupState, HostLimit};

use crate::cluster::{
    UNTIL_MIDNIGHT, blocked_by, cluster, group, host, is_halted, is_told, join, operator, pass, record,
    upgrade_of,
};
use crate::world::{HostStep, OperatorStep, Step};

#[test]
fn groups_wait_for_all_that_come_before() {
    let requires = |number: u8, before: u8| Group { requires: vec![group(before).name], ..group(number) };
    let mut world = cluster(vec![requires(0, 1), requires(1, 2), group(2)], 0);
    (0..3).for_each(|number| join(&mut world, number, number));
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!([0, 1, 2].map(|number| is_told(&world, number)), [false, false, true]);
    assert_eq!(blocked_by(&world, 0).unwrap(), "waiting for g1, g2");
    host(&mut world, 2, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(!is_told(&world, 0) && is_told(&world, 1));
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert!(is_halted(&world, 1) && !is_told(&world, 0));
    assert_eq!(blocked_by(&world, 0).unwrap(), "waiting for g1");
}

#[test]
fn run_opens_a_window_now_but_not_before_what_the_group_requires() {
    let empty = Group { requires: vec![group(0).name], allow_empty: true, ..group(1) };
    let mut world = cluster(vec![group(0), empty], 1);
    operator(&mut world, OperatorStep::Run { group: 1 });
    pass(&mut world, 1);
    assert_eq!(
        (record(&world, 1).state, blocked_by(&world, 1).unwrap().as_str()),
        (GroupState::Scheduled, "waiting for g0")
    );
    operator(&mut world, OperatorStep::Run { group: 0 });
    pass(&mut world, 1);
    assert!(is_told(&world, 0));
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!(record(&world, 1).state, GroupState::Succeeded);
}

#[test]
fn nobody_starts_if_what_comes_before_halts_while_that_is_decided() {
    let half = HostLimit::percent(50).unwrap();
    let second = Group { requires: vec![group(1).name], max_in_flight: half, ..group(0) };
    let mut world = cluster(vec![Group { allow_empty: true, ..group(1) }, second], 2);
    join(&mut world, 2, 1);
    host(&mut world, 2, HostStep::Hold);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!((record(&world, 1).state, is_told(&world, 0)), (GroupState::Succeeded, true));
    host(&mut world, 2, HostStep::Release);
    pass(&mut world, 1);
    host(&mut world, 2, HostStep::Fail);
    host(&mut world, 0, HostStep::Upgrade);
    for step in [Step::HearAll { server: 0 }, Step::Decide { server: 0 }] {
        world.step(&step).unwrap_or_else(|broken| panic!("{broken}"));
    }
    assert!(is_halted(&world, 1));
    assert_eq!((upgrade_of(&world, 1).attempt, world.tally["Refused"]), (0, 1));
}

#[test]
fn a_group_that_has_succeeded_stays_so_when_it_is_run_by_hand_and_blocks_nobody() {
    let lenient = Group { max_failed_before_halt: HostLimit::ALL, ..group(0) };
    let second =
        Group { requires: vec![group(0).name], max_in_flight: HostLimit::percent(50).unwrap(), ..group(1) };
    let mut world = cluster(vec![lenient, second], 2);
    [2, 3].into_iter().for_each(|number| join(&mut world, number, 1));
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Upgrade);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    let before = record(&world, 0);
    assert_eq!((before.state, before.failed, is_told(&world, 2)), (GroupState::Succeeded, 1, true));
    operator(&mut world, OperatorStep::Run { group: 0 });
    host(&mut world, 2, HostStep::Upgrade);
    pass(&mut world, 1);
    let after = record(&world, 0);
    assert_eq!((after.state, after.failed, after.since), (GroupState::Succeeded, 0, before.since));
    assert_eq!((upgrade_of(&world, 1).attempt, is_told(&world, 1)), (2, true), "it has another attempt");
    assert!(is_told(&world, 3), "and who comes next goes on");
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).upgraded), (GroupState::Succeeded, 2));
}
