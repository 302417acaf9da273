//! The outcomes of a started host: upgraded, failed, timed out, rolled back.

use refit_rollout::HostFacts;
use refit_types::{Group, GroupState, HostLimit, Outcome};

use crate::cluster::{UNTIL_MIDNIGHT, cluster, group, host, is_halted, pass, record, upgrade_of};
use crate::world::{HostStep, Step, World};

const UNDONE: &str = "rolled back by its updater at start: it did not start";

#[test]
fn a_late_success_is_counted() {
    let mut world = cluster(vec![Group { max_timeout_before_halt: HostLimit::ALL, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, 60);
    assert!(matches!(upgrade_of(&world, 0).outcome, Some(Outcome::TimedOut { .. })));
    assert_eq!((record(&world, 0).timed_out, record(&world, 0).upgraded), (1, 0));
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(matches!(upgrade_of(&world, 0).outcome, Some(Outcome::Upgraded { .. })));
    assert_eq!((record(&world, 0).timed_out, record(&world, 0).upgraded), (0, 1));
}

#[test]
fn who_runs_the_version_is_in_flight_until_its_updater_finds_it_good() {
    let next = Group { requires: vec![group(0).name], ..group(1) };
    let mut world = cluster(vec![Group { max_failed_before_halt: HostLimit::ALL, ..group(0) }, next], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    (0..2).for_each(|number| host(&mut world, number, HostStep::Try));
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).upgraded, record(&world, 0).in_flight), (0, 2));
    assert_eq!(record(&world, 1).state, GroupState::Scheduled, "nobody goes on before that");
    host(&mut world, 0, HostStep::Upgrade);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert!(matches!(upgrade_of(&world, 0).outcome, Some(Outcome::Upgraded { .. })));
    assert!(matches!(upgrade_of(&world, 1).outcome, Some(Outcome::Failed { .. })));
}

/// A download that fails says nothing about the version: the host keeps its slot and its deadline.
#[test]
fn who_cannot_begin_stays_in_flight_and_times_out_with_that_reason() {
    for older in [false, true] {
        let mut world = cluster(vec![Group { max_timeout_before_halt: HostLimit::ALL, ..group(0) }], 1);
        pass(&mut world, UNTIL_MIDNIGHT);
        host(&mut world, 0, HostStep::Acknowledge);
        host(&mut world, 0, HostStep::Obstacle { older });
        pass(&mut world, 59);
        assert_eq!((record(&world, 0).failed, record(&world, 0).in_flight), (0, 1), "older: {older}");
        pass(&mut world, 1);
        assert!(matches!(upgrade_of(&world, 0).outcome, Some(Outcome::TimedOut { .. })), "older: {older}");
        assert_eq!((record(&world, 0).failed, record(&world, 0).timed_out), (0, 1));
        let host_record = world.store.records.host_record(world.ids[0]).unwrap();
        let plan = world.servers[0].engine.plan();
        let why = HostFacts::obstacle(plan, host_record).unwrap();
        assert!(why.starts_with("could not begin at download: 404 Not Found (tried"), "{why}");
        assert_eq!(HostFacts::failed_because(plan, host_record), None);
    }
}

#[test]
fn who_did_not_acknowledge_has_one_polling_period_more() {
    let mut world = cluster(vec![Group { max_timeout_before_halt: HostLimit::ALL, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, 60 + 599);
    assert!(upgrade_of(&world, 0).outcome.is_some() && upgrade_of(&world, 1).outcome.is_none());
    pass(&mut world, 1);
    assert!(matches!(upgrade_of(&world, 1).outcome, Some(Outcome::TimedOut { .. })));
}

#[test]
fn a_started_host_that_is_lost_has_failed_but_not_for_a_time_in_which_nobody_listened() {
    let mut world = cluster(vec![Group { timeout_seconds: 900, failure_seconds: 100, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Leave);
    pass(&mut world, 100);
    world.step(&Step::Outage { server: 0 }).unwrap();
    pass(&mut world, 129);
    assert_eq!(upgrade_of(&world, 0).outcome, None);
    pass(&mut world, 1);
    let Some(Outcome::Failed { reason, .. }) = upgrade_of(&world, 0).outcome else {
        panic!("it did not fail")
    };
    assert_eq!(&*reason, "its heartbeat was lost at 2026-07-02 00:00:00 UTC");
}

#[test]
fn a_host_that_was_given_up_says_itself_what_happened_once_it_is_back() {
    let lenient =
        Group { max_failed_before_halt: HostLimit::ALL, max_timeout_before_halt: HostLimit::ALL, ..group(0) };
    let mut world = cluster(vec![lenient], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Leave);
    host(&mut world, 1, HostStep::Acknowledge);
    pass(&mut world, 60);
    let because = |world: &World, number: usize| {
        let host_record = world.store.records.host_record(world.ids[number]).unwrap();
        HostFacts::failed_because(world.servers[0].engine.plan(), host_record)
    };
    assert_eq!(because(&world, 0).unwrap(), "its heartbeat was lost at 2026-07-02 00:00:00 UTC");
    assert!(
        matches!(upgrade_of(&world, 1).outcome, Some(Outcome::TimedOut { .. }))
            && because(&world, 1).is_none()
    );
    host(&mut world, 0, HostStep::Return);
    for number in [0, 1] {
        host(&mut world, number, HostStep::FailOtherAttempt { up: true });
        assert_ne!(because(&world, number.into()).as_deref(), Some(UNDONE), "that was another time");
        host(&mut world, number, HostStep::Fail);
        assert_eq!(because(&world, number.into()).as_deref(), Some(UNDONE));
    }
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).failed, record(&world, 0).timed_out), (1, 1), "it is counted as it was");
}

#[test]
fn a_report_of_another_attempt_changes_nothing() {
    let mut world = cluster(vec![group(0)], 1);
    host(&mut world, 0, HostStep::Fail);
    pass(&mut world, UNTIL_MIDNIGHT);
    for step in [
        HostStep::FailOtherAttempt { up: false },
        HostStep::FailOtherAttempt { up: true },
        HostStep::FailOtherVersion,
    ] {
        host(&mut world, 0, step);
        pass(&mut world, 1);
        assert_eq!((upgrade_of(&world, 0).outcome, record(&world, 0).in_flight), (None, 1));
    }
    host(&mut world, 0, HostStep::Fail);
    pass(&mut world, 1);
    assert!(is_halted(&world, 0));
}

#[test]
fn a_host_that_joined_again_does_not_inherit_what_it_reports_of_an_old_attempt() {
    let mut world = cluster(vec![group(0)], 2);
    for (number, acknowledged, undone) in [(0, 0, 1), (1, 1, 0)] {
        host(&mut world, number, HostStep::Remove);
        host(&mut world, number, HostStep::JoinAgain { role: 0, acknowledged, undone });
    }
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(
        [0, 1].map(|number| (upgrade_of(&world, number).attempt, upgrade_of(&world, number).outcome)),
        [(2, None), (2, None)]
    );
    let is_acknowledged = world.servers[0].engine.view().facts(world.ids[1]).unwrap().acknowledged;
    assert!(!is_acknowledged && record(&world, 0).in_flight == 2);
}

#[test]
fn an_attempt_that_cannot_be_counted_on_does_not_break_anything() {
    let mut world = cluster(vec![group(0)], 1);
    let mut host_record = world.store.records.host_record(world.ids[0]).unwrap().clone();
    host_record.report.as_mut().unwrap().hint_acknowledged = u64::MAX;
    world.store.put_together(None, vec![(world.ids[0], Some(Box::new(host_record)))], world.now);
    world.step(&Step::Pass { seconds: UNTIL_MIDNIGHT }).unwrap();
    let (server, now) = (&mut world.servers[0], world.now);
    server.catch_up_with_all(&world.store);
    for _ in 0..2 {
        for commit in server.decide(now) {
            commit.store(&mut world.store, now);
        }
        server.catch_up_with_all(&world.store);
    }
    assert_eq!(upgrade_of(&world, 0).attempt, u64::MAX);
}
