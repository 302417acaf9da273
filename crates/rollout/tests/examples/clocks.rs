//! Servers with different clocks.

use refit_types::{Group, GroupState, HostLimit, WeeklyWindow};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, cluster, cluster_of, every_night, group, host, is_told, operator, pass, record,
};
use crate::world::{HostStep, OperatorStep, Step, World};

/// A group that is open for an hour, in which nobody's time is up.
fn slow_group() -> Group {
    let window = WeeklyWindow { window_hours: 1, ..every_night() };
    Group { jitter_seconds: 3600, timeout_seconds: 900, window, ..group(0) }
}

/// Two servers decide in turns, a hundred times each; says how often something was stored.
fn in_turns(world: &mut World) -> u64 {
    let before = world.store.revision;
    for server in (0..100).flat_map(|_| [0, 1]) {
        for step in [Step::HearAll { server }, Step::Decide { server }] {
            world.step(&step).unwrap_or_else(|broken| panic!("{broken}"));
        }
    }
    world.store.revision.0 - before.0
}

#[test]
fn servers_whose_clocks_differ_do_not_open_and_close_in_turns() {
    let mut world = cluster_of(&[200, 200], vec![slow_group()], 2);
    world.step(&Step::Skew { server: 1, seconds: -2 }).unwrap();
    world.step(&Step::Pass { seconds: UNTIL_MIDNIGHT }).unwrap();
    let most = 3;
    let stored = in_turns(&mut world);
    assert!(stored <= most, "{stored} writes when it opened");
    assert_eq!((record(&world, 0).state, is_told(&world, 0)), (GroupState::Active, true));
    world.step(&Step::Pass { seconds: HOUR }).unwrap();
    let stored = in_turns(&mut world);
    assert!(stored <= most, "{stored} writes when it closed");
    assert_eq!((record(&world, 0).window, record(&world, 0).in_flight), (None, 0));
    pass(&mut world, 23 * HOUR);
    assert!(is_told(&world, 0), "it opens in the next night");
}

#[test]
fn a_server_whose_clock_is_behind_starts_nobody_in_a_window_that_lies_ahead() {
    let mut world = cluster_of(
        &[200, 200],
        vec![Group { max_in_flight: HostLimit::percent(50).unwrap(), ..group(0) }],
        2,
    );
    world.step(&Step::Skew { server: 1, seconds: -2 }).unwrap();
    world.step(&Step::Pass { seconds: UNTIL_MIDNIGHT }).unwrap();
    in_turns(&mut world);
    host(&mut world, 0, HostStep::Upgrade);
    for step in [Step::HearAll { server: 1 }, Step::Decide { server: 1 }] {
        world.step(&step).unwrap_or_else(|broken| panic!("{broken}"));
    }
    assert_eq!((record(&world, 0).upgraded, record(&world, 0).in_flight), (1, 0));
    pass(&mut world, 2);
    assert!(is_told(&world, 1));
}

#[test]
fn only_the_end_of_a_window_keeps_it_closed_until_an_operator_runs_the_group() {
    let mut world = cluster(vec![slow_group()], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    pass(&mut world, HOUR);
    assert_eq!(record(&world, 0).closed, Some("2026-07-02T01:00:00Z".parse().unwrap()));
    operator(&mut world, OperatorStep::Run { group: 0 });
    assert_eq!(record(&world, 0).closed, None);
    pass(&mut world, 1);
    assert!(is_told(&world, 0));
    operator(&mut world, OperatorStep::Switch { on: false });
    pass(&mut world, 3);
    assert_eq!((record(&world, 0).window, record(&world, 0).closed), (None, None), "its end has not come");
}

#[test]
fn a_server_whose_clock_is_behind_does_not_go_back_to_the_window_before_that_of_an_operator() {
    let mut world = cluster_of(&[200, 200], vec![slow_group()], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    world.step(&Step::Skew { server: 1, seconds: -2 }).unwrap();
    world.step(&Step::Pass { seconds: 60 }).unwrap();
    operator(&mut world, OperatorStep::Run { group: 0 });
    let stored = in_turns(&mut world);
    assert!(stored <= 8, "{stored} writes");
    assert_eq!(record(&world, 0).window.map(|window| window.start), Some(world.now));
    assert_eq!(record(&world, 0).in_flight, 2);
}

#[test]
fn a_window_by_hand_ends_once_where_another_is_open_and_clocks_differ() {
    let all_day = WeeklyWindow { window_hours: 24, ..every_night() };
    let mut world = cluster_of(&[100, 100], vec![Group { window: all_day, ..group(0) }], 6);
    pass(&mut world, UNTIL_MIDNIGHT);
    world.step(&Step::Skew { server: 0, seconds: -1 }).unwrap();
    host(&mut world, 5, HostStep::Fail);
    let second_decides = |world: &mut World| {
        for step in [Step::HearAll { server: 1 }, Step::Decide { server: 1 }] {
            world.step(&step).unwrap_or_else(|broken| panic!("{broken}"));
        }
    };
    second_decides(&mut world);
    world.step(&Step::Pass { seconds: 24 * HOUR - 1 }).unwrap();
    operator(&mut world, OperatorStep::Run { group: 0 });
    world.step(&Step::Race { some: 0, step: OperatorStep::ResumeGroup { group: 0 } }).unwrap();
    // Nobody takes it up until it is over for one of them.
    world.step(&Step::Pass { seconds: 24 * HOUR }).unwrap();
    second_decides(&mut world);
    let stored = in_turns(&mut world);
    assert!(stored <= 3, "{stored} writes");
    assert_eq!((record(&world, 0).state, record(&world, 0).run), (GroupState::Active, None));
}
