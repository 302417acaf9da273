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
fn switching_off_tells_nobody_and_starts_anew_when_it_took_too_long() {
    let mut world = cluster_of(&[1], vec![group(0)], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    operator(&mut world, OperatorStep::Switch { on: false });
    pass(&mut world, 1);
    assert_eq!(blocked_by(&world, 0).unwrap(), "automatic updates are disabled");
    assert!(!is_told(&world, 0) && !is_told(&world, 1));
    assert_eq!(record(&world, 0).in_flight, 1, "the one that acknowledged may have switched");
    pass(&mut world, HOUR);
    let off = record(&world, 0);
    assert_eq!((off.failed, off.timed_out, off.in_flight), (0, 0, 0));
    operator(&mut world, OperatorStep::Switch { on: true });
    pass(&mut world, 1);
    assert!(is_told(&world, 0) && is_told(&world, 1));
    assert_eq!([0, 1].map(|number| upgrade_of(&world, number).attempt), [2, 2]);
}

#[test]
fn a_pause_tells_nobody_and_counts_what_hosts_report_that_had_begun() {
    let limits = (HostLimit::percent(50).unwrap(), HostLimit::ALL);
    let half =
        Group { max_in_flight: limits.0, max_failed_before_halt: limits.1, timeout_seconds: 900, ..group(0) };
    let mut world = cluster(vec![half], 10);
    pass(&mut world, UNTIL_MIDNIGHT);
    (0..4).for_each(|number| host(&mut world, number, HostStep::Acknowledge));
    operator(&mut world, OperatorStep::PauseGroup { group: 0 });
    pass(&mut world, 1);
    assert!((0..10).all(|number| !is_told(&world, number)), "nobody, whoever was told before");
    assert_eq!(record(&world, 0).in_flight, 4, "the start that nobody acknowledged is taken back");
    host(&mut world, 0, HostStep::Upgrade);
    host(&mut world, 1, HostStep::Fail);
    host(&mut world, 2, HostStep::CallOff);
    pass(&mut world, 119);
    let paused = record(&world, 0);
    assert_eq!((paused.upgraded, paused.failed, paused.in_flight), (1, 1, 1), "called off is not counted");
    assert_eq!(blocked_by(&world, 0).unwrap(), "paused 2 min ago");
    operator(&mut world, OperatorStep::Pause);
    operator(&mut world, OperatorStep::ResumeGroup { group: 0 });
    pass(&mut world, 3 * HOUR);
    assert_eq!(blocked_by(&world, 0).unwrap(), "the rollout was paused 3 h ago");
    let paused = record(&world, 0);
    assert_eq!((paused.timed_out, paused.in_flight), (0, 0), "it may have been the pause that took so long");
    operator(&mut world, OperatorStep::Resume);
    pass(&mut world, 1);
    assert!(is_told(&world, 2) && is_told(&world, 3) && is_told(&world, 4));
    assert_eq!([2, 3, 4].map(|number| upgrade_of(&world, number).attempt), [2, 2, 2]);
}
