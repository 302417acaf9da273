//! Changes by operators during a rollout.

use refit_types::{Group, HostLimit};

use crate::cluster::{
    HOUR, UNTIL_MIDNIGHT, blocked_by, cluster, cluster_of, group, host, is_halted, is_told, operator, pass,
    record, upgrade_of,
};
use crate::world::{HostStep, OperatorStep};

#[test]
fn a_new_epoch_resets_everything() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Fail);
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    operator(&mut world, OperatorStep::Version { version: 2 });
    assert!(!is_halted(&world, 0) && record(&world, 0).members == 0);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).members, record(&world, 0).in_flight, record(&world, 0).failed), (3, 3, 0));
    assert_eq!([0, 1, 2].map(|number| upgrade_of(&world, number).attempt), [2, 2, 2]);
}

#[test]
fn switching_off_stops_all_and_takes_it_back_uncounted() {
    let mut world = cluster_of(&[1], vec![group(0)], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    operator(&mut world, OperatorStep::Switch { on: false });
    pass(&mut world, 1);
    assert_eq!(blocked_by(&world, 0).unwrap(), "automatic updates are disabled");
    assert!(!is_told(&world, 0) && !is_told(&world, 1) && record(&world, 0).in_flight == 0);
    pass(&mut world, HOUR);
    assert_eq!((record(&world, 0).failed, record(&world, 0).timed_out), (0, 0));
    operator(&mut world, OperatorStep::Switch { on: true });
    pass(&mut world, 1);
    assert!(is_told(&world, 0) && is_told(&world, 1));
    assert_eq!([0, 1].map(|number| upgrade_of(&world, number).attempt), [2, 2]);
}

#[test]
fn switching_off_counts_what_hosts_reported_but_not_that_their_time_is_up() {
    let mut world = cluster(vec![Group { max_failed_before_halt: HostLimit::ALL, ..group(0) }], 4);
    pass(&mut world, UNTIL_MIDNIGHT);
    (0..4).for_each(|number| host(&mut world, number, HostStep::Acknowledge));
    host(&mut world, 0, HostStep::Upgrade);
    host(&mut world, 1, HostStep::Fail);
    host(&mut world, 2, HostStep::Leave);
    operator(&mut world, OperatorStep::Switch { on: false });
    pass(&mut world, 60);
    let record = record(&world, 0);
    assert_eq!((record.upgraded, record.failed, record.timed_out, record.in_flight), (1, 1, 0, 0));
}

#[test]
fn a_pause_keeps_hosts_from_starting_and_leaves_those_that_did() {
    let mut world = cluster(vec![Group { max_in_flight: HostLimit::percent(50).unwrap(), ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    operator(&mut world, OperatorStep::PauseGroup { group: 0 });
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 120);
    assert!(is_told(&world, 0) && !is_told(&world, 1));
    assert_eq!(blocked_by(&world, 0).unwrap(), "paused 2 min ago");
    operator(&mut world, OperatorStep::Pause);
    operator(&mut world, OperatorStep::ResumeGroup { group: 0 });
    pass(&mut world, 3 * HOUR);
    assert_eq!(blocked_by(&world, 0).unwrap(), "the rollout was paused 3 h ago");
    operator(&mut world, OperatorStep::Resume);
    pass(&mut world, 1);
    assert!(is_told(&world, 1));
}
