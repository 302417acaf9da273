//! Servers that lag: with a slow watch, or with commits that arrive late.

use refit_types::{GroupState, Revision};

use crate::cluster::{UNTIL_MIDNIGHT, cluster, cluster_of, group, host, operator, pass, record};
use crate::world::{Fate, HostStep, OperatorStep, Step, World};

fn steps(world: &mut World, steps: &[Step]) {
    for step in steps {
        world.step(step).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn a_server_that_has_not_heard_of_the_hosts_neither_opens_nor_seals_nor_ends_a_group() {
    // The first server decides for one host at a time; the second one knows the epoch and no host.
    let mut world = cluster_of(&[1, 200], vec![group(0)], 3);
    operator(&mut world, OperatorStep::Version { version: 2 });
    let (look, decide) = (Step::Look { server: 1 }, Step::Decide { server: 1 });
    steps(&mut world, &[Step::Pass { seconds: UNTIL_MIDNIGHT }, look.clone(), decide.clone()]);
    assert_eq!(record(&world, 0).window, None, "it has opened the group for nobody");
    steps(&mut world, &[Step::HearAll { server: 0 }, Step::Decide { server: 0 }]);
    steps(&mut world, &[look.clone(), decide.clone()]);
    let opened = record(&world, 0);
    assert_eq!((opened.members, opened.admitting, opened.sealed), (1, true, false), "{opened:?}");
    for _ in 0..3 {
        steps(
            &mut world,
            &[Step::HearAll { server: 0 }, Step::Decide { server: 0 }, look.clone(), decide.clone()],
        );
    }
    let sealed = record(&world, 0);
    assert_eq!((sealed.members, sealed.sealed, &sealed.state), (3, true, &GroupState::Active), "{sealed:?}");
    assert!(sealed.in_flight <= 1, "{sealed:?}");
    steps(&mut world, &[Step::HearAll { server: 1 }, decide]);
    assert_eq!(record(&world, 0).in_flight, 3, "it goes on once it has heard of them");
}

#[test]
fn what_is_decided_late_is_refused_once_a_host_has_changed() {
    let mut world = cluster(vec![group(0)], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(record(&world, 0).in_flight, 2);
    host(&mut world, 0, HostStep::Acknowledge);
    steps(&mut world, &[Step::HostsGo { some: 0b01 }, Step::HearAll { server: 0 }, Step::Send { server: 0 }]);
    assert_eq!(world.servers[0].commits.len(), 1, "its success is on its way");
    // It goes back before that is stored.
    host(&mut world, 0, HostStep::Report { version: 0 });
    steps(&mut world, &[Step::Commit { server: 0, fate: Fate::Answered }]);
    assert_eq!((record(&world, 0).upgraded, world.tally.get("Refused")), (0, Some(&1)));
}

#[test]
fn a_commit_whose_answer_is_lost_is_not_stored_again() {
    let mut world = cluster(vec![group(0)], 2);
    steps(
        &mut world,
        &[Step::Pass { seconds: UNTIL_MIDNIGHT }, Step::HearAll { server: 0 }, Step::Send { server: 0 }],
    );
    steps(&mut world, &[Step::Commit { server: 0, fate: Fate::Unanswered }]);
    let stored = record(&world, 0);
    assert_eq!((stored.members, stored.admitting), (2, false));
    let before: Revision = world.store.revision;
    // It does not know, and decides the same once more.
    steps(&mut world, &[Step::Send { server: 0 }, Step::Commit { server: 0, fate: Fate::Answered }]);
    assert_eq!(world.store.revision, before, "it was stored again");
    steps(&mut world, &[Step::HearAll { server: 0 }, Step::Decide { server: 0 }]);
    assert_eq!(record(&world, 0).in_flight, 2);
}
