//! When a group halts because too many hosts failed or timed out, and how a run resumes it.

use refit_types::{GroupState, HostLimit, Outcome};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, blocked_by, cluster, group, host, is_halted, is_told, operator, pass, record,
    upgrade_of,
};
use crate::world::{HostStep, OperatorStep};

#[test]
fn a_halt_says_why_and_nobody_is_told_to_go_any_more() {
    let mut world = cluster(vec![group(0)], 120);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 5, HostStep::Acknowledge);
    (0..4).for_each(|number| host(&mut world, number, HostStep::Fail));
    pass(&mut world, 1);
    assert_eq!(blocked_by(&world, 0).unwrap(), "halted: 4 of 120 failed, limit 0%");
    assert!((0..120).all(|number| !is_told(&world, number)));
    let Some(Outcome::Failed { reason, .. }) = upgrade_of(&world, 0).outcome else {
        panic!("it did not fail")
    };
    assert_eq!(&*reason, "rolled back by its updater at start: it did not start");
}

#[test]
fn time_outs_have_a_threshold_of_their_own() {
    let mut world = cluster(vec![group(0)], 10);
    pass(&mut world, UNTIL_MIDNIGHT);
    (2..10).for_each(|number| host(&mut world, number, HostStep::Upgrade));
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, 60);
    assert!(!is_halted(&world, 0), "1 of 10 is 10%, which is allowed");
    pass(&mut world, 600);
    assert_eq!(blocked_by(&world, 0).unwrap(), "halted: 2 of 10 timed out, limit 10%");
}

#[test]
fn a_halt_takes_back_only_what_nobody_acknowledged() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert!(is_halted(&world, 0) && record(&world, 0).in_flight == 1);
    pass(&mut world, 60);
    assert_eq!((record(&world, 0).timed_out, upgrade_of(&world, 2).start_time), (1, None));
}

#[test]
fn a_halt_lasts_until_an_operator_runs_the_group_and_then_there_is_a_new_attempt() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Fail);
    pass(&mut world, 24 * HOUR);
    operator(
        &mut world,
        OperatorStep::Thresholds { group: 0, failed: HostLimit::ALL, timed_out: HostLimit::ALL },
    );
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(is_halted(&world, 0), "neither time, nor other limits, nor a late success end it");
    pass(&mut world, 12 * HOUR);
    operator(&mut world, OperatorStep::Run { group: 0 });
    pass(&mut world, 0);
    assert_eq!((record(&world, 0).state, record(&world, 0).failed), (GroupState::Active, 0));
    assert_eq!([0, 1, 2].map(|number| upgrade_of(&world, number).attempt), [1, 2, 2]);
    assert!(is_told(&world, 1) && record(&world, 0).in_flight == 2);
}

#[test]
fn a_member_that_failed_before_the_group_was_run_again_is_not_counted_when_it_is_removed() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Fail);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    host(&mut world, 0, HostStep::Leave);
    operator(&mut world, OperatorStep::Run { group: 0 });
    pass(&mut world, 1);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert_eq!(record(&world, 0).failed, 1);
    host(&mut world, 0, HostStep::Remove);
    assert_eq!((record(&world, 0).failed, record(&world, 0).removed), (1, 1));
}
