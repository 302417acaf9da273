//! What is promised of rollouts, one promise at a time.
#![allow(clippy::unwrap_used, missing_docs)]

mod clocks;
#[allow(dead_code)]
mod model;
#[allow(dead_code)]
mod world;

use jiff::{SignedDuration, Timestamp};
use refit_types::{
    AutoUpdate, ClusterMaintenanceConfig, Days, Group, GroupRecord, GroupState, Groups, HostId, Immediate,
    Outcome, Percent, PolicySchedule, Selector, TimeZoneName, Upgrade, WeeklyWindow,
};
use uuid::Uuid;
use world::{HostStep, OperatorStep, Step, World};

/// A day before the first window of all groups, which are open from midnight to four.
const NOON: &str = "2026-07-01T12:00:00Z";
const UNTIL_MIDNIGHT: u32 = 12 * 3600;
const HOUR: u32 = 3600;

fn every_night() -> WeeklyWindow {
    WeeklyWindow { days: Days::ALL, start_hour: 0, window_hours: 4, timezone: TimeZoneName::utc() }
}

/// A group with the defaults, for hosts of the role of its number.
fn group(number: u8) -> Group {
    Group {
        name: format!("g{number}").parse().unwrap(),
        agents: Selector {
            node_labels_expression: Some(world::expression(number)),
            instance_labels_expression: None,
        },
        window: every_night(),
        jitter_seconds: 0,
        max_in_flight: Percent::ALL,
        timeout_seconds: 60,
        failure_seconds: 0,
        max_failed_before_halt: Percent::ZERO,
        max_timeout_before_halt: Percent::new(10).unwrap(),
        requires: Vec::new(),
    }
}

/// That many hosts of group 0, on the version before.
fn cluster(groups: Vec<Group>, hosts: u8) -> World {
    cluster_of(&[200], groups, hosts)
}

/// The same with several servers.
fn cluster_of(servers: &[u8], groups: Vec<Group>, hosts: u8) -> World {
    let schedule = PolicySchedule { window: every_night(), jitter_seconds: 0 };
    let config = ClusterMaintenanceConfig {
        description: String::new(),
        agent_auto_update: AutoUpdate {
            enabled: true,
            immediate: Immediate::default(),
            regular: schedule.clone(),
            critical: schedule,
        },
        agent_auto_update_groups: Groups { regular: groups, critical: Vec::new() },
    };
    let mut world = World::new(config, servers, NOON.parse().unwrap());
    for number in 0..hosts {
        join(&mut world, number, 0);
    }
    world
}

fn join(world: &mut World, number: u8, role: u8) {
    let id = HostId::new(Uuid::from_u128(u128::from(number) + 1));
    world.ids.push(id);
    host(world, number, HostStep::Join { role, version: 0 });
}

fn host(world: &mut World, number: u8, step: HostStep) {
    world.step(&Step::Host { host: number, step }).unwrap_or_else(|broken| panic!("{broken}"));
}

fn operator(world: &mut World, step: OperatorStep) {
    world.step(&Step::Operator(step)).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Time passes, and servers do what is due.
fn pass(world: &mut World, seconds: u32) {
    for step in [Step::Pass { seconds }, Step::Settle] {
        world.step(&step).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

fn record(world: &World, group: u8) -> GroupRecord {
    world.store.records.group(&format!("g{group}"))
}

fn mark(world: &World, number: usize) -> Upgrade {
    *world.store.records.instance(world.ids[number]).unwrap().upgrade.clone().unwrap()
}

fn is_told(world: &World, number: usize) -> bool {
    world.servers[0].engine.answer(Some(world.ids[number]), world.now).auto_update
}

fn waiting(world: &World, group: usize) -> Option<String> {
    let engine = &world.servers[0].engine;
    engine.waiting(group, world.now).map(|waiting| waiting.in_words(world.now))
}

fn is_halted(world: &World, group: u8) -> bool {
    record(world, group).is_halted()
}

#[test]
fn a_group_opens_in_its_window_and_succeeds_once_all_have_the_version() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT - 1);
    assert!(!is_told(&world, 0) && record(&world, 0).state == GroupState::Scheduled);
    pass(&mut world, 1);
    assert!(is_told(&world, 0) && record(&world, 0).state == GroupState::Active);
    (0..3).for_each(|number| host(&mut world, number, HostStep::Upgrade));
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).upgraded), (GroupState::Succeeded, 3));
    assert_eq!(waiting(&world, 0), None);
}

#[test]
fn no_more_start_than_the_limit_rounded_up_and_the_lowest_uuids_first() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::new(25).unwrap(), ..group(0) }], 5);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!([0, 1, 2, 3, 4].map(|number| is_told(&world, number)), [true, true, false, false, false]);
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(is_told(&world, 2) && !is_told(&world, 3));
}

#[test]
fn zero_percent_in_flight_starts_nobody() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::ZERO, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!((record(&world, 0).members, record(&world, 0).in_flight), (2, 0));
    assert_eq!(waiting(&world, 0).unwrap(), "max_in_flight is 0%: no host may start");
}

#[test]
fn a_late_success_is_counted() {
    let mut world = cluster(vec![Group { max_timeout_before_halt: Percent::ALL, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, 60);
    assert!(matches!(mark(&world, 0).outcome, Some(Outcome::TimedOut { .. })));
    assert_eq!((record(&world, 0).timed_out, record(&world, 0).upgraded), (1, 0));
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(matches!(mark(&world, 0).outcome, Some(Outcome::Upgraded { .. })));
    assert_eq!((record(&world, 0).timed_out, record(&world, 0).upgraded), (0, 1));
}

#[test]
fn who_did_not_acknowledge_has_one_polling_period_more() {
    let mut world = cluster(vec![Group { max_timeout_before_halt: Percent::ALL, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, 60 + 599);
    assert!(mark(&world, 0).outcome.is_some() && mark(&world, 1).outcome.is_none());
    pass(&mut world, 1);
    assert!(matches!(mark(&world, 1).outcome, Some(Outcome::TimedOut { .. })));
}

#[test]
fn a_start_that_nobody_acknowledged_is_taken_back_when_the_window_closes() {
    let slow = Group { jitter_seconds: 3600, timeout_seconds: 900, ..group(0) };
    let mut world =
        cluster(vec![Group { window: WeeklyWindow { window_hours: 1, ..every_night() }, ..slow }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    pass(&mut world, HOUR);
    assert!(is_told(&world, 0) && !is_told(&world, 1));
    assert!(mark(&world, 0).start_time.is_some() && mark(&world, 1).start_time.is_none());
    let record = record(&world, 0);
    assert_eq!((record.in_flight, record.failed, record.timed_out), (1, 0, 0));
}

#[test]
fn a_halt_says_why_and_nobody_is_told_to_go_any_more() {
    let mut world = cluster(vec![group(0)], 120);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 5, HostStep::Acknowledge);
    (0..4).for_each(|number| host(&mut world, number, HostStep::Fail));
    pass(&mut world, 1);
    assert_eq!(waiting(&world, 0).unwrap(), "halted: 4 of 120 failed, limit 0%");
    assert!((0..120).all(|number| !is_told(&world, number)));
    let Some(Outcome::Failed { reason, .. }) = mark(&world, 0).outcome else { panic!("it did not fail") };
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
    assert_eq!(waiting(&world, 0).unwrap(), "halted: 2 of 10 timed out, limit 10%");
}

#[test]
fn a_halt_lasts_until_an_operator_runs_the_group_and_then_there_is_a_new_attempt() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Fail);
    pass(&mut world, 24 * HOUR);
    operator(&mut world, OperatorStep::Thresholds { group: 0, failed: 100, timed_out: 100 });
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(is_halted(&world, 0), "neither time, nor other limits, nor a late success end it");
    pass(&mut world, 12 * HOUR);
    operator(&mut world, OperatorStep::Run { group: 0 });
    pass(&mut world, 0);
    assert_eq!((record(&world, 0).state, record(&world, 0).failed), (GroupState::Active, 0));
    assert_eq!([0, 1, 2].map(|number| mark(&world, number).attempt), [1, 2, 2]);
    assert!(is_told(&world, 1) && record(&world, 0).in_flight == 2);
}

#[test]
fn run_opens_a_window_now_but_not_before_what_the_group_requires() {
    let mut world = cluster(vec![group(0), Group { requires: vec![group(0).name], ..group(1) }], 1);
    operator(&mut world, OperatorStep::Run { group: 1 });
    pass(&mut world, 1);
    assert_eq!(
        (record(&world, 1).state, waiting(&world, 1).unwrap().as_str()),
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
fn newcomers_wait_for_the_next_window() {
    let mut world = cluster(vec![group(0)], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    join(&mut world, 2, 0);
    pass(&mut world, 60);
    assert_eq!((record(&world, 0).members, is_told(&world, 2)), (2, false));
    (0..2).for_each(|number| host(&mut world, number, HostStep::Upgrade));
    pass(&mut world, 23 * HOUR);
    assert_eq!(record(&world, 0).state, GroupState::Succeeded);
    pass(&mut world, HOUR);
    assert_eq!((record(&world, 0).members, is_told(&world, 2)), (3, true));
    assert_eq!(record(&world, 0).state, GroupState::Succeeded, "those who wait for it go on");
}

#[test]
fn a_host_that_was_heard_until_just_now_is_a_member() {
    let mut world = cluster_of(&[1], vec![group(0)], 4);
    pass(&mut world, UNTIL_MIDNIGHT - 30);
    host(&mut world, 1, HostStep::Leave);
    pass(&mut world, 1);
    host(&mut world, 0, HostStep::Leave);
    host(&mut world, 2, HostStep::Leave);
    pass(&mut world, 0);
    assert_eq!(world.servers[0].engine.progress(0).newcomers, 1);
    pass(&mut world, 29);
    let progress = world.servers[0].engine.progress(0);
    assert_eq!((record(&world, 0).members, progress.away, progress.newcomers), (3, 2, 0));
    (0..3).for_each(|number| host(&mut world, number, HostStep::Return));
    pass(&mut world, 1);
    assert_eq!([0, 1, 2, 3].map(|number| is_told(&world, number)), [true, false, true, true]);
}

#[test]
fn a_group_without_members_succeeds_when_it_opens() {
    let mut world = cluster(vec![group(0)], 0);
    pass(&mut world, UNTIL_MIDNIGHT - 1);
    assert_eq!(waiting(&world, 0).unwrap(), "window opens in 1 s");
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).members), (GroupState::Succeeded, 0));
}

#[test]
fn held_hosts_take_no_slot_and_do_not_block() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::new(1).unwrap(), ..group(0) }], 4);
    host(&mut world, 0, HostStep::Pin { version: 0 });
    host(&mut world, 1, HostStep::Disable);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!([0, 1, 2, 3].map(|number| is_told(&world, number)), [false, false, true, false]);
    host(&mut world, 2, HostStep::Hold);
    pass(&mut world, 1);
    assert!(!is_told(&world, 2) && is_told(&world, 3), "the slot goes to the next");
    host(&mut world, 3, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!(
        (record(&world, 0).state, world.servers[0].engine.progress(0).held),
        (GroupState::Succeeded, 3)
    );
}

#[test]
fn groups_wait_for_all_that_come_before() {
    let requires = |number: u8, before: u8| Group { requires: vec![group(before).name], ..group(number) };
    let mut world = cluster(vec![requires(0, 1), requires(1, 2), group(2)], 0);
    (0..3).for_each(|number| join(&mut world, number, number));
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!([0, 1, 2].map(|number| is_told(&world, number)), [false, false, true]);
    assert_eq!(waiting(&world, 0).unwrap(), "waiting for g1, g2");
    host(&mut world, 2, HostStep::Upgrade);
    pass(&mut world, 1);
    assert!(!is_told(&world, 0) && is_told(&world, 1));
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert!(is_halted(&world, 1) && !is_told(&world, 0));
    assert_eq!(waiting(&world, 0).unwrap(), "waiting for g1");
}

#[test]
fn a_started_host_that_is_lost_has_failed_but_not_for_a_time_in_which_nobody_listened() {
    let mut world = cluster(vec![Group { timeout_seconds: 900, failure_seconds: 100, ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Leave);
    pass(&mut world, 100);
    world.step(&Step::Outage { server: 0 }).unwrap();
    pass(&mut world, 129);
    assert_eq!(mark(&world, 0).outcome, None);
    pass(&mut world, 1);
    let Some(Outcome::Failed { reason, .. }) = mark(&world, 0).outcome else { panic!("it did not fail") };
    assert_eq!(&*reason, "its heartbeat was lost at 2026-07-02 00:00:00 UTC");
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
        assert_eq!((mark(&world, 0).outcome, record(&world, 0).in_flight), (None, 1));
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
        [0, 1].map(|number| (mark(&world, number).attempt, mark(&world, number).outcome)),
        [(2, None), (2, None)]
    );
    let is_acknowledged = world.servers[0].engine.facts(world.ids[1]).unwrap().acknowledged;
    assert!(!is_acknowledged && record(&world, 0).in_flight == 2);
}

#[test]
fn an_attempt_that_cannot_be_counted_on_does_not_break_anything() {
    let mut world = cluster(vec![group(0)], 1);
    let mut instance = world.store.records.instance(world.ids[0]).unwrap().clone();
    instance.report.as_mut().unwrap().hint_acknowledged = u64::MAX;
    world.store.put_together(None, vec![(world.ids[0], Some(Box::new(instance)))], world.now);
    world.step(&Step::Pass { seconds: UNTIL_MIDNIGHT }).unwrap();
    let (server, now) = (&mut world.servers[0], world.now);
    server.catch_up_with_all(&world.store);
    for _ in 0..2 {
        for decision in server.engine.decide(now, 10) {
            server.apply(&mut world.store, &decision, now);
        }
        server.catch_up_with_all(&world.store);
    }
    assert_eq!(mark(&world, 0).attempt, u64::MAX);
}

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
    assert_eq!([0, 1, 2].map(|number| mark(&world, number).attempt), [2, 2, 2]);
}

#[test]
fn switching_off_stops_all_and_takes_it_back_uncounted() {
    let mut world = cluster_of(&[1], vec![group(0)], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    operator(&mut world, OperatorStep::Switch { on: false });
    pass(&mut world, 1);
    assert_eq!(waiting(&world, 0).unwrap(), "automatic updates are disabled");
    assert!(!is_told(&world, 0) && !is_told(&world, 1) && record(&world, 0).in_flight == 0);
    pass(&mut world, HOUR);
    assert_eq!((record(&world, 0).failed, record(&world, 0).timed_out), (0, 0));
    operator(&mut world, OperatorStep::Switch { on: true });
    pass(&mut world, 1);
    assert!(is_told(&world, 0) && is_told(&world, 1));
    assert_eq!([0, 1].map(|number| mark(&world, number).attempt), [2, 2]);
}

#[test]
fn switching_off_counts_what_hosts_reported_but_not_that_their_time_is_up() {
    let mut world = cluster(vec![Group { max_failed_before_halt: Percent::ALL, ..group(0) }], 4);
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
fn a_halt_takes_back_only_what_nobody_acknowledged() {
    let mut world = cluster(vec![group(0)], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Acknowledge);
    host(&mut world, 1, HostStep::Fail);
    pass(&mut world, 1);
    assert!(is_halted(&world, 0) && record(&world, 0).in_flight == 1);
    pass(&mut world, 60);
    assert_eq!((record(&world, 0).timed_out, mark(&world, 2).start_time), (1, None));
}

#[test]
fn a_pause_keeps_hosts_from_starting_and_leaves_those_that_did() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::new(50).unwrap(), ..group(0) }], 2);
    pass(&mut world, UNTIL_MIDNIGHT);
    operator(&mut world, OperatorStep::PauseGroup { group: 0 });
    host(&mut world, 0, HostStep::Upgrade);
    pass(&mut world, 120);
    assert!(is_told(&world, 0) && !is_told(&world, 1));
    assert_eq!(waiting(&world, 0).unwrap(), "paused 2 min ago");
    operator(&mut world, OperatorStep::Pause);
    operator(&mut world, OperatorStep::ResumeGroup { group: 0 });
    pass(&mut world, 3 * HOUR);
    assert_eq!(waiting(&world, 0).unwrap(), "the rollout was paused 3 h ago");
    operator(&mut world, OperatorStep::Resume);
    pass(&mut world, 1);
    assert!(is_told(&world, 1));
}

#[test]
fn a_few_members_that_are_away_are_left_behind_after_ten_minutes() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::new(10).unwrap(), ..group(0) }], 10);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 9, HostStep::Leave);
    for number in 0..9 {
        host(&mut world, number, HostStep::Upgrade);
        pass(&mut world, 1);
    }
    assert_eq!(waiting(&world, 0).unwrap(), "waiting for 1 of 10 members that are away");
    pass(&mut world, 590);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    pass(&mut world, 1);
    assert_eq!(record(&world, 0).state, GroupState::Succeeded);
}

#[test]
fn too_many_members_that_are_away_are_waited_for() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::new(10).unwrap(), ..group(0) }], 9);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 8, HostStep::Leave);
    for number in 0..8 {
        host(&mut world, number, HostStep::Upgrade);
        pass(&mut world, 1);
    }
    pass(&mut world, 2 * HOUR);
    assert_eq!(record(&world, 0).state, GroupState::Active);
    host(&mut world, 8, HostStep::Return);
    pass(&mut world, 1);
    assert!(is_told(&world, 8));
}

#[test]
fn strangers_and_hosts_without_a_group_follow_the_policy() {
    let mut world = cluster(vec![group(0)], 0);
    join(&mut world, 0, 5);
    let answers = |world: &World| {
        let engine = &world.servers[0].engine;
        [None, Some(world.ids[0])].map(|host| engine.answer(host, world.now).auto_update)
    };
    assert_eq!(answers(&world), [false, false]);
    pass(&mut world, UNTIL_MIDNIGHT);
    assert_eq!(answers(&world), [true, true]);
    pass(&mut world, 4 * HOUR);
    assert_eq!(answers(&world), [false, false]);
}

#[test]
fn a_member_that_is_removed_gives_its_slot_away() {
    let mut world = cluster(vec![Group { max_in_flight: Percent::new(1).unwrap(), ..group(0) }], 3);
    pass(&mut world, UNTIL_MIDNIGHT);
    host(&mut world, 0, HostStep::Remove);
    pass(&mut world, 1);
    let record = record(&world, 0);
    assert_eq!((record.members, record.removed, record.in_flight, is_told(&world, 1)), (3, 1, 1, true));
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

#[test]
fn nobody_starts_if_what_comes_before_halts_while_that_is_decided() {
    let half = Percent::new(50).unwrap();
    let second = Group { requires: vec![group(1).name], max_in_flight: half, ..group(0) };
    let mut world = cluster(vec![group(1), second], 2);
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
    assert_eq!((mark(&world, 1).attempt, world.tally["Refused"]), (0, 1));
}

#[test]
fn a_window_counts_the_hours_of_its_zone() {
    let berlin = WeeklyWindow { timezone: "Europe/Berlin".parse().unwrap(), ..every_night() };
    let mut world = cluster(vec![Group { window: berlin, ..group(0) }], 1);
    pass(&mut world, UNTIL_MIDNIGHT - 2 * HOUR - 1);
    assert!(!is_told(&world, 0));
    pass(&mut world, 1);
    assert!(is_told(&world, 0));
    let opened: Timestamp = "2026-07-01T22:00:00Z".parse().unwrap();
    assert_eq!(record(&world, 0).window.unwrap().end, opened + SignedDuration::from_hours(4));
}

#[test]
fn a_group_that_has_succeeded_stays_so_when_it_is_run_by_hand_and_blocks_nobody() {
    let lenient = Group { max_failed_before_halt: Percent::ALL, ..group(0) };
    let second =
        Group { requires: vec![group(0).name], max_in_flight: Percent::new(50).unwrap(), ..group(1) };
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
    assert_eq!((mark(&world, 1).attempt, is_told(&world, 1)), (2, true), "it has another attempt");
    assert!(is_told(&world, 3), "and who comes next goes on");
    host(&mut world, 1, HostStep::Upgrade);
    pass(&mut world, 1);
    assert_eq!((record(&world, 0).state, record(&world, 0).upgraded), (GroupState::Succeeded, 2));
}
