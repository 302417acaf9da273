//! The real engine over made-up hosts: what must hold of every run, and how it is shown.

#![allow(clippy::unwrap_used)]

mod fleets;

use fleets::{at, fleet, group, hosts, simulation, three};
use proptest::prelude::*;
use refit_rollout::{Behaviour, Cohort, GroupTimeline, Outcomes, Share, Simulation, Timeline};
use refit_types::{GroupState, HostLimit};

fn behaviour(fail: &str, hang: &str, die: &str) -> Behaviour {
    let share = |text: &str| text.parse::<Share>().unwrap();
    Behaviour { fail: share(fail), hang: share(hang), die: share(die), ..Behaviour::default() }
}

fn states(timeline: &Timeline) -> Vec<&str> {
    timeline.groups.iter().map(|group| group.state.as_str()).collect()
}

/// Every host has exactly one outcome, in its group and in the whole.
fn check_conserved(timeline: &Timeline) {
    assert_eq!(timeline.outcomes.total(), timeline.hosts);
    let by_group: u32 = timeline.groups.iter().map(|group| group.outcomes.total()).sum();
    assert_eq!(by_group + timeline.ungrouped, timeline.hosts);
    for group in &timeline.groups {
        assert_eq!(group.outcomes.total(), group.hosts, "{}", group.name);
        let last = group.samples.last().copied();
        let counted = |count: fn(&refit_rollout::Sample) -> u32| last.as_ref().map_or(0, count);
        let Outcomes { upgraded, failed, timed_out, in_flight, .. } = group.outcomes;
        assert_eq!(
            [failed, timed_out, in_flight],
            [counted(|s| s.failed), counted(|s| s.timed_out), counted(|s| s.in_flight)],
            "what the engine counted of {} is what the hosts say",
            group.name
        );
        assert!(upgraded <= counted(|s| s.upgraded));
    }
}

#[test]
fn without_failures_every_group_succeeds_within_its_limit() {
    let timeline = simulation(three(), Behaviour::default()).run().unwrap();
    check_conserved(&timeline);
    assert_eq!(states(&timeline), ["succeeded"; 3]);
    assert!(timeline.finished && !timeline.limit_passed, "{timeline:?}");
    let expected =
        Outcomes { upgraded: 500, had_it: 30, held: 5, away: 7, not_started: 3, ..Outcomes::default() };
    assert_eq!(timeline.outcomes, expected);
    let limits: Vec<_> = timeline.groups.iter().map(|group| (group.most_in_flight, group.limit)).collect();
    assert_eq!(limits, [(5, 5), (18, 18), (44, 44)], "the limits are used up, and held");
    let opened: Vec<_> = timeline.groups.iter().map(|group| group.opened.unwrap()).collect();
    assert_eq!(opened[0], at("2026-03-02T02:00:00Z"));
    assert!(opened[1] >= timeline.groups[0].ended.unwrap());
    assert!(opened[2] >= timeline.groups[1].ended.unwrap());
    assert_eq!(timeline.warnings, ["3 of 545 hosts are in no group and follow agent_auto_update"]);
}

#[test]
fn when_all_fail_the_first_group_halts_and_nothing_follows() {
    for (behaviour, cause) in [
        (behaviour("100%", "0%", "0%"), "failed"),
        (behaviour("0%", "0%", "100%"), "failed"),
        (behaviour("0%", "100%", "0%"), "timed out"),
    ] {
        let timeline = simulation(three(), behaviour).run().unwrap();
        check_conserved(&timeline);
        assert_eq!(states(&timeline), ["halted", "scheduled", "scheduled"]);
        assert!(timeline.finished && !timeline.limit_passed);
        assert_eq!(timeline.outcomes.upgraded, 0);
        assert!(timeline.groups[1..].iter().all(|group| group.opened.is_none() && group.samples.is_empty()));
        let GroupState::Halted(halt) = &timeline.groups[0].state else { panic!("not halted") };
        assert!(halt.to_string().contains(cause), "{halt}");
        assert!(timeline.warnings[0].starts_with("canary: halted: "), "{:?}", timeline.warnings);
        assert_eq!(timeline.warnings[1], "staging: does not open within 14 days: waiting for canary");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let behaviour = Behaviour { seed, ..behaviour("4%", "3%", "2%") };
        simulation(three(), behaviour).run().unwrap()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_slow_rollout_goes_on_in_the_next_window() {
    let mut groups = vec![group("all", "production", 2, 1, &[])];
    groups[0].window.window_hours = 1;
    let behaviour = Behaviour { seconds: (200, 280), ..Behaviour::default() };
    let timeline = simulation(groups.clone(), behaviour).run().unwrap();
    check_conserved(&timeline);
    let all = &timeline.groups[0];
    assert_eq!(states(&timeline), ["succeeded"]);
    assert!(all.windows.len() > 1 && !timeline.limit_passed, "{:?}", all.windows);
    assert!(all.windows.iter().all(|window| window.end.duration_since(window.start).as_hours() <= 1));

    let mut short = simulation(groups, behaviour);
    short.days = 1;
    let timeline = short.run().unwrap();
    check_conserved(&timeline);
    assert!(!timeline.finished && timeline.outcomes.not_started > 0);
    assert!(timeline.warnings[0].starts_with("all: is not done within 1 day: "), "{:?}", timeline.warnings);
}

#[test]
fn what_can_never_start_is_told() {
    let groups = vec![group("none", "canary", 2, 0, &[])];
    let timeline = simulation(groups, Behaviour::default()).run().unwrap();
    check_conserved(&timeline);
    assert!(!timeline.finished && timeline.outcomes.upgraded == 0);
    assert!(
        timeline.warnings[0].starts_with("none: is not done within 14 days: "),
        "{:?}",
        timeline.warnings
    );

    let mut simulation = simulation(three(), Behaviour::default());
    simulation.plan.policy.enabled = false;
    let timeline = simulation.run().unwrap();
    assert_eq!(timeline.warnings[0], "canary: does not open within 14 days: automatic updates are disabled");
    simulation.days = 0;
    assert!(simulation.run().is_err());
    simulation.days = 1;
    simulation.fleet = vec![hosts(u32::MAX, "canary"), hosts(u32::MAX, "canary")];
    assert!(simulation.run().unwrap_err().to_string().contains("at most 10000000"));
}

/// What is shown, against what was looked at and found good. `REFIT_BLESS=1` takes what there is now.
fn check_golden(name: &str, shown: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("REFIT_BLESS").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == golden, "{name} has changed:\n{shown}");
}

fn mixed() -> Timeline {
    let mut groups = three();
    groups[2].max_failed_before_halt = HostLimit::percent(2).unwrap();
    simulation(groups, Behaviour { seed: 3, ..behaviour("4%", "2%", "1%") }).run().unwrap()
}

#[test]
fn a_timeline_is_shown_as_text() {
    let text = mixed().to_text();
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    check_golden("timeline.txt", &format!("{text}\n"));
}

#[test]
fn a_timeline_is_drawn() {
    let svg = mixed().to_svg();
    assert!(svg.contains("class=\"halt\"") && !svg.contains("<script"));
    check_golden("timeline.svg", &svg);
}

#[test]
fn a_long_name_and_a_large_fleet_keep_to_the_columns() {
    let name = "a-group-with-a-name-that-is-as-long-as-a-name-can-be-0123456789";
    let mut simulation = simulation(vec![group(name, "x", 0, 1, &[])], Behaviour::default());
    simulation.fleet = vec![hosts(20_000, "x")];
    let mut timeline = simulation.run().unwrap();
    timeline.groups[0].hosts = 10_000_000;
    for line in timeline.to_text().lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_hosts_do_none_is_lost_and_no_limit_is_passed(
        seed: u64,
        shares in (0..30_u32, 0..30_u32, 0..30_u32),
        counts in (0..60_u32, 0..60_u32, 0..60_u32),
        in_flight in 1..=100_u8,
        halt in 0..=100_u8,
        seconds in (1..400_u32, 0..400_u32),
    ) {
        let mut groups = three();
        for group in &mut groups {
            group.max_in_flight = HostLimit::percent(in_flight).unwrap();
            group.max_failed_before_halt = HostLimit::percent(halt).unwrap();
            group.max_timeout_before_halt = HostLimit::percent(halt).unwrap();
        }
        let (fail, hang, die) = shares;
        let behaviour = Behaviour {
            seed,
            seconds: (seconds.0, seconds.0 + seconds.1),
            ..behaviour(&format!("{fail}%"), &format!("{hang}%"), &format!("{die}%"))
        };
        let mut simulation = simulation(groups, behaviour);
        let (canary, staging, production) = counts;
        simulation.fleet = vec![
            hosts(canary, "canary"),
            hosts(staging, "staging"),
            Cohort { live: false, ..hosts(staging / 3, "staging") },
            hosts(production, "production"),
            Cohort { held: true, ..hosts(production / 2, "production") },
        ];
        let timeline = simulation.run().unwrap();
        check_conserved(&timeline);
        prop_assert!(!timeline.limit_passed, "{timeline:?}");
        let is_stuck = |group: &&GroupTimeline| {
            group.waiting.as_ref().is_some_and(|why| why.starts_with("blocked: "))
        };
        let stuck = timeline.groups.iter().find(is_stuck);
        prop_assert_eq!(timeline.finished, stuck.is_none(), "{:?}", timeline);
        prop_assert_eq!(stuck.map_or(0, |group| group.outcomes.upgraded + group.outcomes.not_started), 0);
        for group in &timeline.groups {
            prop_assert!(group.most_in_flight <= group.limit);
            if group.opened.is_none() {
                prop_assert_eq!(group.outcomes.upgraded + group.outcomes.failed + group.outcomes.timed_out, 0);
            }
        }
        prop_assert_eq!(&timeline, &simulation.run().unwrap());
        let _ = fleet();
    }
}

#[test]
fn hosts_that_are_away_from_the_start_are_no_members_even_if_a_window_is_open() {
    let away = Cohort { live: false, ..hosts(5, "canary") };
    let open = Simulation {
        start: at("2026-03-02T02:00:00Z"),
        fleet: vec![hosts(10, "canary"), away],
        ..simulation(three(), Behaviour::default())
    };
    let canary = &open.run().unwrap().groups[0];
    assert_eq!((canary.hosts, canary.members, canary.outcomes.away), (15, 10, 5));
}
