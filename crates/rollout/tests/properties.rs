//! Random clusters do random things, and every invariant of a rollout is held at every step.
#![allow(clippy::unwrap_used, missing_docs)]

mod model;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, RngSeed, TestCaseError, TestRng, TestRunner};
use refit_types::{
    AutoUpdate, ClusterMaintenanceConfig, Day, Days, Group, Groups, HostId, HostLimit, Immediate,
    PolicySchedule, Selector, WeeklyWindow,
};
use uuid::Uuid;
use world::{Fate, HostStep, OperatorStep, Step, World};

#[derive(Clone)]
struct Scenario {
    config: ClusterMaintenanceConfig,
    /// One server for each: how many hosts it decides for at once.
    servers: Vec<u8>,
    begins: Timestamp,
    /// UUID, role and version of those that are there from the beginning.
    hosts: Vec<(u128, u8, u8)>,
    /// Who may join later.
    guests: Vec<u128>,
    steps: Vec<Step>,
}

fn window() -> impl Strategy<Value = WeeklyWindow> {
    let zones =
        select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]);
    let days = prop_oneof![3 => Just(0b111_1111_u8), 1 => 1_u8..128];
    (days, 0_u8..24, prop_oneof![2 => Just(4_u8), 3 => Just(24_u8), 3 => 1_u8..=24], zones).prop_map(
        |(days, start_hour, window_hours, zone)| {
            let named = |n: usize| Day::ALL[n];
            let days = Days::of((0..7).filter(|n| days >> n & 1 == 1).map(named)).unwrap();
            WeeklyWindow { days, start_hour, window_hours, timezone: zone.parse().unwrap() }
        },
    )
}

fn limit(of: &'static [&'static str]) -> impl Strategy<Value = HostLimit> {
    select(of).prop_map(|limit| limit.parse().unwrap())
}

fn group() -> impl Strategy<Value = (Group, u8)> {
    let lengths =
        (select(&[0_u32, 0, 60, 600, 3600][..]), 30_u32..=900, prop_oneof![Just(0_u32), 0_u32..=900]);
    let limits = (
        limit(&[
            "0%", "0.5%", "1%", "10%", "34%", "33.4%", "50%", "50%", "100%", "100%", "100%", "0", "1", "2",
            "5",
        ]),
        limit(&["0%", "0.5%", "10%", "34%", "50%", "100%", "100%", "0", "1", "3"]),
        limit(&["0%", "0.5%", "10%", "34%", "50%", "100%", "100%", "0", "1", "3"]),
    );
    let requires = (any::<u8>(), any::<u8>()).prop_map(|(a, b)| a & b);
    (window(), lengths, limits, requires, prop::bool::weighted(0.2)).prop_map(
        |(window, lengths, limits, requires, allow_empty)| {
            let group = Group {
                name: "later".parse().unwrap(),
                agents: Selector::default(),
                window,
                jitter_seconds: lengths.0,
                max_in_flight: limits.0,
                timeout_seconds: lengths.1,
                failure_seconds: lengths.2,
                max_failed_before_halt: limits.1,
                max_timeout_before_halt: limits.2,
                requires: Vec::new(),
                allow_empty,
            };
            (group, requires)
        },
    )
}

/// Groups `g0` to `g4`, each for a role, the last perhaps for all; requirements follow a random order.
fn groups() -> impl Strategy<Value = Vec<Group>> {
    let order = Just(vec![0_usize, 1, 2, 3, 4]).prop_shuffle();
    (prop::collection::vec(group(), 1..=5), order, any::<bool>()).prop_map(|(drawn, order, takes_all)| {
        let count = drawn.len();
        let name = |n: usize| format!("g{n}").parse().unwrap();
        let numbered = drawn.into_iter().enumerate().map(|(n, (mut group, requires))| {
            group.name = name(n);
            if n + 1 < count || !takes_all {
                group.agents.node_labels_expression = Some(world::expression(n as u8));
            }
            let before = |other: &usize| order[*other] < order[n] && requires >> other & 1 == 1;
            group.requires = (0..count).filter(before).map(name).collect();
            group
        });
        numbered.collect()
    })
}

/// A chain of groups that are always open and hardly ever halt: it gets far.
fn chain() -> impl Strategy<Value = Vec<Group>> {
    groups().prop_map(|mut groups| {
        groups.truncate(3);
        for n in 0..groups.len() {
            groups[n].requires = groups[..n].iter().rev().take(1).map(|before| before.name.clone()).collect();
            groups[n].window = WeeklyWindow { days: Days::ALL, window_hours: 24, ..groups[n].window.clone() };
            if groups[n].max_in_flight.slots(100) < 10 {
                groups[n].max_in_flight = HostLimit::TENTH;
            }
            groups[n].max_failed_before_halt = HostLimit::percent(50).unwrap();
            groups[n].max_timeout_before_halt = HostLimit::ALL;
        }
        groups
    })
}

fn config() -> impl Strategy<Value = ClusterMaintenanceConfig> {
    let regular = prop_oneof![groups().boxed(), chain().boxed()];
    (regular, groups(), window()).prop_map(|(regular, critical, window)| {
        let schedule = PolicySchedule { window, jitter_seconds: 7 };
        ClusterMaintenanceConfig {
            description: String::new(),
            agent_auto_update: AutoUpdate {
                enabled: true,
                immediate: Immediate::default(),
                regular: schedule.clone(),
                critical: schedule,
            },
            agent_auto_update_groups: Groups { regular, critical },
        }
    })
}

fn host_step() -> impl Strategy<Value = HostStep> {
    prop_oneof![
        3 => (prop_oneof![Just(0_u8), 0_u8..6], 0_u8..3).prop_map(|(role, version)| HostStep::Join { role, version }),
        2 => (0_u8..3, 0_u8..4, 0_u8..4).prop_map(|(role, acknowledged, undone)| {
            HostStep::JoinAgain { role, acknowledged, undone }
        }),
        1 => Just(HostStep::JoinSilently),
        4 => Just(HostStep::Acknowledge),
        3 => Just(HostStep::Try),
        3 => any::<bool>().prop_map(|first| HostStep::Install { first }),
        4 => Just(HostStep::Upgrade),
        1 => (0_u8..3).prop_map(|version| HostStep::Report { version }),
        5 => Just(HostStep::Fail),
        1 => any::<bool>().prop_map(|up| HostStep::FailOtherAttempt { up }),
        1 => Just(HostStep::FailOtherVersion),
        2 => any::<bool>().prop_map(|older| HostStep::Obstacle { older }),
        6 => Just(HostStep::Leave),
        3 => Just(HostStep::Return),
        1 => (0_u8..3).prop_map(|version| HostStep::Pin { version }),
        1 => Just(HostStep::Disable),
        3 => Just(HostStep::Hold),
        1 => Just(HostStep::HoldSilently),
        3 => (0_u8..3, any::<bool>()).prop_map(|(version, earlier)| HostStep::HoldOther { version, earlier }),
        2 => Just(HostStep::CallOff),
        2 => Just(HostStep::Release),
        2 => prop_oneof![Just(0_u8), 0_u8..6].prop_map(|role| HostStep::Relabel { role }),
        2 => Just(HostStep::Remove),
    ]
}

fn operator_step() -> impl Strategy<Value = OperatorStep> {
    let group = || 0_u8..5;
    let any_limit = || limit(&["0%", "0.5%", "1%", "10%", "34%", "50%", "100%", "0", "1", "3"]);
    prop_oneof![
        3 => (group(), any_limit()).prop_map(|(group, limit)| OperatorStep::Limit { group, limit }),
        1 => (group(), any_limit(), any_limit()).prop_map(|(group, failed, timed_out)| {
            OperatorStep::Thresholds { group, failed, timed_out }
        }),
        2 => (group(), 0_u8..24, 0_u8..24).prop_map(|(group, start, length)| {
            OperatorStep::Hours { group, start, length }
        }),
        1 => (group(), 0_u16..3601, 0_u16..871, 0_u16..901).prop_map(|(group, jitter, timeout, failure)| {
            OperatorStep::Times { group, jitter, timeout, failure }
        }),
        3 => prop::bool::weighted(0.8).prop_map(|on| OperatorStep::Switch { on }),
        1 => Just(OperatorStep::Pause),
        2 => Just(OperatorStep::Resume),
        1 => group().prop_map(|group| OperatorStep::PauseGroup { group }),
        2 => group().prop_map(|group| OperatorStep::ResumeGroup { group }),
        10 => group().prop_map(|group| OperatorStep::Run { group }),
        3 => (0_u8..3).prop_map(|version| OperatorStep::Version { version }),
        4 => group().prop_map(|group| OperatorStep::MarkDone { group }),
        1 => (group(), any::<bool>()).prop_map(|(group, allowed)| OperatorStep::AllowEmpty { group, allowed }),
        1 => (group(), 0_u8..6).prop_map(|(group, role)| OperatorStep::Selector { group, role }),
        1 => (0_u8..7).prop_map(|schedule| OperatorStep::Schedule { schedule: schedule / 3 }),
        1 => group().prop_map(|group| OperatorStep::Swap { group }),
        1 => (group(), group()).prop_map(|(group, other)| OperatorStep::Require { group, other }),
        1 => group().prop_map(|group| OperatorStep::Free { group }),
    ]
}

/// Operators that do not begin anew all the time: more happens in one epoch.
fn calm_operator_step() -> impl Strategy<Value = OperatorStep> {
    prop_oneof![
        6 => (0_u8..5).prop_map(|group| OperatorStep::Run { group }),
        1 => (0_u8..5, limit(&["0.5%", "1%", "25%", "60%", "100%", "1", "4"])).prop_map(|(group, limit)| OperatorStep::Limit { group, limit }),
        1 => (0_u8..5).prop_map(|group| OperatorStep::ResumeGroup { group }),
    ]
}

/// Operators that choose another version while hosts are still under way to the one before.
fn impatient_operator_step() -> impl Strategy<Value = OperatorStep> {
    prop_oneof![
        8 => (0_u8..3).prop_map(|version| OperatorStep::Version { version }),
        2 => (0_u8..5).prop_map(|group| OperatorStep::Run { group }),
        1 => Just(OperatorStep::Pause),
        2 => Just(OperatorStep::Resume),
        1 => (0_u8..7).prop_map(|schedule| OperatorStep::Schedule { schedule: schedule / 3 }),
        1 => (0_u8..5, limit(&["1%", "34%", "50%"])).prop_map(|(group, limit)| OperatorStep::Limit { group, limit }),
        1 => (0_u8..5).prop_map(|group| OperatorStep::MarkDone { group }),
    ]
}

/// Operators that stop everything, choose something else meanwhile, and go on.
fn hesitant_operator_step() -> impl Strategy<Value = OperatorStep> {
    prop_oneof![
        4 => any::<bool>().prop_map(|on| OperatorStep::Switch { on }),
        2 => Just(OperatorStep::Pause),
        3 => Just(OperatorStep::Resume),
        1 => (0_u8..5).prop_map(|group| OperatorStep::PauseGroup { group }),
        2 => (0_u8..5).prop_map(|group| OperatorStep::ResumeGroup { group }),
        3 => (0_u8..3).prop_map(|version| OperatorStep::Version { version }),
        2 => (0_u8..3).prop_map(|schedule| OperatorStep::Schedule { schedule }),
        2 => (0_u8..5).prop_map(|group| OperatorStep::Run { group }),
        2 => (0_u8..5).prop_map(|group| OperatorStep::MarkDone { group }),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Answered), 2 => Just(Fate::Unanswered), 1 => Just(Fate::Lost), 1 => Just(Fate::Repeated)]
}

fn step(operator_step: BoxedStrategy<OperatorStep>) -> impl Strategy<Value = Step> {
    let server = || 0_u8..4;
    prop_oneof![
        3 => prop_oneof![12 => 0_u32..10, 12 => 0_u32..500, 1 => 0_u32..100_000].prop_map(|seconds| Step::Pass { seconds }),
        2 => (-2_i8..3).prop_map(|seconds| Step::PassToEdge { seconds }),
        2 => server().prop_map(|server| Step::PassToWaking { server }),
        2 => (server(), prop_oneof![1 => Just(0_i16), 2 => -9_i16..10, 1 => -900_i16..10])
            .prop_map(|(server, seconds)| Step::Skew { server, seconds }),
        6 => (server(), 1_u8..6).prop_map(|(server, count)| Step::Hear { server, count }),
        1 => (server(), 1_u8..6).prop_map(|(server, back)| Step::HearAgain { server, back }),
        3 => server().prop_map(|server| Step::Look { server }),
        5 => server().prop_map(|server| Step::HearAll { server }),
        6 => server().prop_map(|server| Step::Decide { server }),
        6 => server().prop_map(|server| Step::Send { server }),
        6 => (server(), fate()).prop_map(|(server, fate)| Step::Commit { server, fate }),
        3 => (server(), server(), any::<u16>(), fate())
            .prop_map(|(server, other, some, fate)| Step::Overtaken { server, other, some, fate }),
        7 => Just(Step::Settle),
        1 => server().prop_map(|server| Step::Restart { server }),
        2 => server().prop_map(|server| Step::Outage { server }),
        16 => (any::<u8>(), host_step()).prop_map(|(host, step)| Step::Host { host, step }),
        3 => prop_oneof![Just(0_u8), 0_u8..3].prop_map(|role| Step::Arrive { role }),
        3 => (0_u8..15, 0_u16..500, prop::option::weighted(0.4, 0_u8..3))
            .prop_map(|(how, seconds, version)| Step::Hesitate { how, seconds, version }),
        2 => (any::<u8>(), 0_u8..3, 0_u8..6, 0_u8..3)
            .prop_map(|(host, version, from, to)| Step::Stray { host, version, from, to }),
        3 => any::<u16>().prop_map(|some| Step::HostsGo { some }),
        4 => operator_step.clone().prop_map(Step::Operator),
        3 => (any::<u16>(), operator_step).prop_map(|(some, step)| Step::Race { some, step }),
    ]
}

fn scenario(steps: usize) -> impl Strategy<Value = Scenario> {
    // Clocks change in Europe, in America and in Australia in the weeks after these.
    let begins = select(
        &["2026-03-05T10:00:00Z", "2026-03-27T20:00:00Z", "2026-10-02T03:00:00Z", "2026-07-01T00:00:00Z"][..],
    );
    let host = || any::<u64>().prop_map(|id| u128::from(id) << 64 | 7);
    let role = || prop_oneof![3 => Just(0_u8), 2 => 0_u8..3, 1 => 0_u8..6];
    let hosts = prop::collection::vec((host(), role(), prop_oneof![9 => Just(0_u8), 1 => 0_u8..3]), 0..14);
    let guests = prop::collection::vec(host(), 1..4);
    let done = prop_oneof![
        prop::collection::vec(step(operator_step().boxed()), 1..steps),
        prop::collection::vec(step(calm_operator_step().boxed()), 1..steps),
        prop::collection::vec(step(impatient_operator_step().boxed()), 1..steps),
        prop::collection::vec(step(hesitant_operator_step().boxed()), 1..steps),
    ];
    let servers = prop::collection::vec(prop_oneof![2 => Just(100_u8), 1 => 1_u8..5], 1..=4);
    (config(), servers, begins, 0_i64..86_400, hosts, guests, done).prop_map(
        |(config, servers, begins, later, hosts, guests, steps)| {
            let begins = begins.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(later);
            let mut seen = BTreeSet::new();
            let hosts = hosts.into_iter().filter(|(id, _, _)| seen.insert(*id)).collect();
            let guests = guests.into_iter().filter(|id| !seen.contains(id)).collect();
            Scenario { config, servers, begins, hosts, guests, steps }
        },
    )
}

/// One line for each thing: what is left after shrinking is to be read by people.
impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "batches {:?}, begins {}", self.servers, self.begins)?;
        let groups = &self.config.agent_auto_update_groups;
        for group in groups.regular.iter().chain(&groups.critical) {
            let (window, requires) = (&group.window, &group.requires);
            let days: Vec<&str> = window.days.iter().map(Day::as_str).collect();
            writeln!(
                f,
                "{}: {:?} +{}h {} {days:?}, requires {requires:?}, jitter {}, timeout {}, failure {}, in flight {}, failed {}, timed out {}, {:?}",
                group.name,
                window.start_hour,
                window.window_hours,
                window.timezone,
                group.jitter_seconds,
                group.timeout_seconds,
                group.failure_seconds,
                group.max_in_flight,
                group.max_failed_before_halt,
                group.max_timeout_before_halt,
                group.agents.node_labels_expression
            )?;
        }
        writeln!(f, "hosts {:x?}, guests {:x?}", self.hosts, self.guests)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "{number}: {step:?}"))
    }
}

impl Scenario {
    /// Everyone of the beginning is there, and the first window opens.
    fn begin(&self) -> World {
        let mut world = World::new(self.config.clone(), &self.servers, self.begins);
        for (number, (id, role, version)) in self.hosts.iter().enumerate() {
            world.ids.push(HostId::new(Uuid::from_u128(*id)));
            world.host_step(number, &HostStep::Join { role: *role, version: *version });
        }
        world.ids.extend(self.guests.iter().map(|id| HostId::new(Uuid::from_u128(*id))));
        world.step(&Step::PassToEdge { seconds: 0 }).unwrap();
        world
    }
}

fn is_full() -> bool {
    std::env::var("REFIT_SWEEP").as_deref() == Ok("full")
}

/// `REFIT_SEED` repeats a run; every run says what it began from.
fn runner() -> ProptestConfig {
    let drawn = || RandomState::new().build_hasher().finish();
    let seed = std::env::var("REFIT_SEED").map_or_else(|_| drawn(), |seed| seed.parse().unwrap());
    println!("REFIT_SEED={seed}");
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: if is_full() { 10_000 } else { 250 },
        max_shrink_iters: usual.max_shrink_iters.min(4000),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..usual
    }
}

/// The random clusters come to all that can happen: otherwise what holds there says little.
#[test]
fn everything_happens() {
    let mut runner =
        TestRunner::new_with_rng(ProptestConfig::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mut tally: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..240 {
        let scenario = scenario(160).new_tree(&mut runner).unwrap().current();
        let mut world = scenario.begin();
        scenario.steps.iter().for_each(|step| drop(world.step(step)));
        for (happened, count) in world.tally {
            *tally.entry(happened).or_default() += count;
        }
    }
    for expected in [
        "Admit",
        "AdmitUpgraded",
        "AdmitInFlight",
        "CarryNewcomer",
        "StartNewcomer",
        "Settle",
        "Start",
        "Revoke",
        "Finish(Upgraded)",
        "Finish(Undone)",
        "Finish(Lost)",
        "Finish(TimedOut)",
        "Refused",
        "Lost",
        "Unanswered",
        "Late",
        "active",
        "scheduled",
        "succeeded",
        "halted",
        "Ended well",
        "Suspend",
        "Resume",
        "Paused immediate",
        "Marked done",
        "Selects no hosts",
        "Nobody could be upgraded",
        "Start despite another hold",
        "Unproved",
        "Unproved first version",
    ] {
        assert!(tally.get(expected).is_some_and(|count| *count >= 2), "{expected} in {tally:?}");
    }
}

proptest! {
    #![proptest_config(runner())]

    /// Whatever happens, in whatever order, all invariants hold; and once nothing is in the way any more, the
    /// rollout comes to its end.
    #[test]
    fn a_rollout_keeps_its_promises(scenario in scenario(160)) {
        let mut world = scenario.begin();
        let fail = |number: usize, broken| TestCaseError::fail(format!("after step {number}: {broken}"));
        for (number, step) in scenario.steps.iter().enumerate() {
            world.step(step).map_err(|broken| fail(number, broken))?;
        }
        world.ends().map_err(|broken| TestCaseError::fail(format!("on the way to its end: {broken}")))?;
    }
}
