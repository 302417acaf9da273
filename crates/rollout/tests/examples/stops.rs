//! Pauses and the off switch while hosts are under way: slots are kept, and the time does not count.

use refit_types::{Group, HostLimit};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, cluster, cluster_of, group, host, is_halted, is_told, operator, pass, record,
    upgrade_of,
};
use crate::world::{HostStep, OperatorStep, World};

fn half() -> Group {
    Group { max_in_flight: HostLimit::percent(50).unwrap(), timeout_seconds: 600, ..group(0) }
}

/// Each way to keep hosts from going, and how it ends.
fn stops() -> [(OperatorStep, OperatorStep); 3] {
    [
        (OperatorStep::Switch { on: false }, OperatorStep::Switch { on: true }),
        (OperatorStep::Pause, OperatorStep::Resume),
        (OperatorStep::PauseGroup { group: 0 }, OperatorStep::ResumeGroup { group: 0 }),
    ]
}

fn told(world: &World) -> usize {
    (0..world.ids.len()).filter(|number| is_told(world, *number)).count()
}

#[test]
fn the_limit_holds_when_another_version_is_chosen_while_nobody_may_go() {
    for (stop, go) in stops() {
        let mut world = cluster_of(&[200, 1], vec![half()], 6);
        pass(&mut world, UNTIL_MIDNIGHT);
        (0..3).for_each(|number| host(&mut world, number, HostStep::Acknowledge));
        operator(&mut world, stop.clone());
        pass(&mut world, 1);
        assert_eq!((record(&world, 0).in_flight, told(&world)), (3, 0), "{stop:?}");
        operator(&mut world, OperatorStep::Version { version: 2 });
        pass(&mut world, 1);
        operator(&mut world, go);
        pass(&mut world, 1);
        assert_eq!((record(&world, 0).in_flight, told(&world)), (3, 0), "{stop:?}: three may be away");
        host(&mut world, 0, HostStep::CallOff);
        pass(&mut world, 1);
        assert_eq!(
            (record(&world, 0).in_flight, told(&world)),
            (3, 1),
            "{stop:?}: its slot goes to the next"
        );
        pass(&mut world, 600);
        let record = record(&world, 0);
        assert_eq!(
            (record.in_flight, told(&world), record.timed_out),
            (3, 3, 0),
            "{stop:?}: by their deadline"
        );
    }
}

#[test]
fn time_for_which_nobody_might_go_does_not_count() {
    for (stop, go) in stops() {
        let mut world = cluster(vec![half()], 2);
        pass(&mut world, UNTIL_MIDNIGHT);
        host(&mut world, 0, HostStep::Acknowledge);
        pass(&mut world, 100);
        operator(&mut world, stop.clone());
        pass(&mut world, 0);
        pass(&mut world, 400);
        let since = upgrade_of(&world, 0).start_time.unwrap();
        operator(&mut world, go);
        pass(&mut world, 0);
        assert!(is_told(&world, 0), "{stop:?}: it is told again");
        let moved = upgrade_of(&world, 0);
        assert_eq!(moved.start_time.unwrap().duration_since(since).as_secs(), 400, "{stop:?}");
        assert_eq!((moved.attempt, moved.suspended), (1, None), "{stop:?}");
        pass(&mut world, 499);
        assert_eq!((record(&world, 0).in_flight, record(&world, 0).timed_out), (1, 0), "{stop:?}");
        pass(&mut world, 1);
        assert!(is_halted(&world, 0) && record(&world, 0).timed_out == 1, "{stop:?}: it had its 600 s");
    }
}

#[test]
fn a_deadline_that_passes_just_before_hosts_may_go_again_makes_no_time_out() {
    for (stop, go) in stops() {
        let mut world = cluster(vec![half()], 2);
        pass(&mut world, UNTIL_MIDNIGHT);
        host(&mut world, 0, HostStep::Acknowledge);
        operator(&mut world, stop.clone());
        pass(&mut world, 0);
        pass(&mut world, 599);
        // No server decides between the deadline and the end of the stop.
        world.now = crate::model::after(world.now, 2);
        operator(&mut world, go);
        pass(&mut world, 0);
        let record = record(&world, 0);
        assert_eq!(
            (record.in_flight, record.timed_out, upgrade_of(&world, 0).attempt),
            (1, 0, 1),
            "{stop:?}"
        );
    }
}

#[test]
fn a_host_that_does_not_report_while_nobody_may_go_loses_its_slot_uncounted() {
    for (stop, go) in stops() {
        let mut world = cluster(vec![half()], 2);
        pass(&mut world, UNTIL_MIDNIGHT);
        host(&mut world, 0, HostStep::Acknowledge);
        operator(&mut world, stop.clone());
        pass(&mut world, 599);
        assert_eq!(record(&world, 0).in_flight, 1, "{stop:?}");
        pass(&mut world, 1);
        let stopped = record(&world, 0);
        assert_eq!((stopped.in_flight, stopped.timed_out, stopped.failed), (0, 0, 0), "{stop:?}");
        pass(&mut world, HOUR);
        operator(&mut world, go);
        pass(&mut world, 1);
        assert!(is_told(&world, 0), "{stop:?}");
        assert_eq!(upgrade_of(&world, 0).attempt, 2, "{stop:?}");
    }
}

#[test]
fn what_hosts_report_while_nobody_may_go_is_counted() {
    for (stop, _) in stops() {
        let group = Group { max_failed_before_halt: HostLimit::ALL, timeout_seconds: 600, ..group(0) };
        let mut world = cluster(vec![group], 6);
        pass(&mut world, UNTIL_MIDNIGHT);
        (0..5).for_each(|number| host(&mut world, number, HostStep::Acknowledge));
        operator(&mut world, stop.clone());
        pass(&mut world, 1);
        assert_eq!(record(&world, 0).in_flight, 5, "{stop:?}: the start that nobody acknowledged is revoked");
        host(&mut world, 0, HostStep::Upgrade);
        host(&mut world, 1, HostStep::Fail);
        host(&mut world, 2, HostStep::Leave);
        host(&mut world, 3, HostStep::CallOff);
        pass(&mut world, 60);
        let record = record(&world, 0);
        assert_eq!((record.upgraded, record.failed, record.in_flight), (1, 2, 1), "{stop:?}");
    }
}
