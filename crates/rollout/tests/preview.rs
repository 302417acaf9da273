//! Previews: openings, counts, estimates and blockers, as data and as text.

#![allow(clippy::unwrap_used)]

mod fleets;

use fleets::{at, config, fleet, group, hosts, plan, planned, three, window};
use refit_rollout::{
    Behaviour, Blocker, Cohort, GroupPhase, GroupStanding, Preview, Simulation, Standing, preview,
};
use refit_types::{Day, Days, Halt, HaltCause, HostLimit, Schedule, Span};

const NOW: &str = "2026-03-02T00:00:00Z";

fn previewed(groups: Vec<refit_types::Group>) -> Preview {
    preview(&plan(groups), &fleet(), &Standing::default(), at(NOW), 60)
}

#[test]
fn hosts_are_counted_by_what_they_need() {
    let seen = previewed(three());
    let production = &seen.groups[2];
    assert_eq!((production.takes, production.to_upgrade, production.on_version), (442, 400, 30));
    assert_eq!((production.held, production.away, production.limit), (5, 7, 44), "members are the live ones");
    assert_eq!((seen.hosts, seen.ungrouped, seen.ungrouped_on_version), (545, 3, 0));
}

#[test]
fn groups_open_one_after_the_other() {
    let seen = previewed(three());
    let times: Vec<_> = seen.groups.iter().map(|group| (group.opens.unwrap(), group.ends.unwrap())).collect();
    let of = |from: &str, to: &str| (at(from), at(to));
    assert_eq!(
        times,
        [
            of("2026-03-02T02:00:00Z", "2026-03-02T02:02:00Z"),
            of("2026-03-02T02:02:00Z", "2026-03-02T02:07:00Z"),
            of("2026-03-02T03:00:00Z", "2026-03-02T03:10:00Z"),
        ]
    );
    assert_eq!(seen.ends, Some(at("2026-03-02T03:10:00Z")));
    assert!(seen.groups.iter().all(|group| group.blocked.is_empty()));
}

/// Two ways to the same numbers: arithmetic, and the engine itself.
#[test]
fn the_estimate_is_what_the_engine_does_at_best() {
    let mut groups = three();
    groups.iter_mut().for_each(|group| group.jitter_seconds = 0);
    let plan = plan(groups);
    let seen = preview(&plan, &fleet(), &Standing::default(), at(NOW), 60);
    let behaviour = Behaviour { seconds: (60, 60), ..Behaviour::default() };
    let run = Simulation { plan, start: at(NOW), fleet: fleet(), behaviour, days: 7 }.run().unwrap();
    for (guessed, done) in seen.groups.iter().zip(&run.groups) {
        let (guess, end) = (guessed.ends.unwrap(), done.ended.unwrap());
        assert!(guess <= end && end.duration_since(guess).as_secs() < 120, "{guess} {end}");
        assert_eq!((guessed.limit, guessed.takes), (done.limit, done.hosts));
    }
}

#[test]
fn a_zone_is_shown_as_its_clocks_do() {
    let mut groups = vec![group("berlin", "canary", 9, 10, &[])];
    groups[0].window = window(9, "Europe/Berlin");
    groups[0].window.days = Days::of([Day::Wed]).unwrap();
    let seen = previewed(groups);
    let berlin = &seen.groups[0];
    assert_eq!(berlin.opens_local.as_deref(), Some("Wed 2026-03-04 09:00"));
    assert_eq!((berlin.opens, berlin.timezone.as_str()), (Some(at("2026-03-04T08:00:00Z")), "Europe/Berlin"));
}

#[test]
fn what_does_not_fit_goes_on_in_the_next_window() {
    let mut groups = vec![group("slow", "production", 2, 1, &[])];
    groups[0].window.window_hours = 1;
    let seen = preview(&plan(groups), &fleet(), &Standing::default(), at(NOW), 240);
    // 400 hosts, 5 at once: 80 waves of 4 minutes, 15 of which start in each hour.
    assert_eq!(seen.groups[0].ends, Some(at("2026-03-07T02:20:00Z")));
}

#[test]
fn what_blocks_is_told() {
    let mut groups = three();
    groups[0].max_in_flight = HostLimit::ZERO;
    let seen = previewed(groups);
    assert_eq!(seen.groups[0].blocked, [Blocker::NoSlots { limit: HostLimit::ZERO }]);
    assert_eq!(seen.groups[1].blocked, [Blocker::Requires { group: "canary".parse().unwrap() }]);
    assert_eq!((seen.groups[1].opens, seen.ends), (None, None));
    let text = seen.to_text();
    assert!(text.contains("! staging: requires canary, which does not end"), "{text}");
    assert!(text.ends_with("It does not end by itself."), "{text}");

    let mut off = config(three());
    off.agent_auto_update.enabled = false;
    let paused = Standing { paused: Some(at("2026-03-01T22:00:00Z")), ..Standing::default() };
    let seen = preview(&planned(&off, Schedule::Regular), &fleet(), &paused, at(NOW), 60);
    assert_eq!(seen.blocked, [Blocker::Disabled, Blocker::Paused { since: at("2026-03-01T22:00:00Z") }]);
    assert_eq!(seen.ends, None);
    assert!(seen.groups[0].opens.is_some(), "when it would open is told all the same");

    let at_once =
        preview(&planned(&config(three()), Schedule::Immediate), &fleet(), &Standing::default(), at(NOW), 60);
    assert_eq!((at_once.blocked.as_slice(), at_once.groups.len()), (&[Blocker::Immediate][..], 0));

    let mut far = three();
    far[0].window.days = Days::of([Day::Sun]).unwrap();
    far[1].window.days = Days::of([Day::Sat]).unwrap();
    let seen = previewed(far);
    let opens = Some(at("2026-03-14T02:00:00Z"));
    assert_eq!(seen.groups[1].blocked, [Blocker::NotWithinAWeek { opens }]);
    assert!(seen.ends.is_some(), "late is not never");
}

#[test]
fn a_rollout_under_way_goes_on_from_where_it_stands() {
    let standing = |groups: &[(&str, GroupPhase, bool)]| Standing {
        paused: None,
        groups: groups
            .iter()
            .map(|(name, phase, paused)| {
                let paused = paused.then(|| at("2026-03-01T22:00:00Z"));
                (name.parse().unwrap(), GroupStanding { phase: *phase, paused })
            })
            .collect(),
    };
    let seen = |groups: &[(&str, GroupPhase, bool)]| {
        preview(&plan(three()), &fleet(), &standing(groups), at(NOW), 60)
    };
    // Staging was run by hand, outside of its hours: that window counts, and canary is not asked again.
    let by_hand = Span { start: at("2026-03-01T23:30:00Z"), end: at("2026-03-02T00:30:00Z") };
    let running =
        seen(&[("canary", GroupPhase::Succeeded, false), ("staging", GroupPhase::Open(by_hand), false)]);
    assert_eq!((running.groups[0].opens, running.groups[0].ends), (None, None));
    assert_eq!(running.groups[1].ends, Some(at("2026-03-02T00:05:00Z")));
    assert_eq!(running.ends, Some(at("2026-03-02T03:10:00Z")));
    let text = running.to_text();
    assert!(text.contains("canary      succeeded") && text.contains("staging     is open now"), "{text}");

    let halt = Halt { cause: HaltCause::Failed, count: 2, members: 90, limit: HostLimit::Hosts(1) };
    let halted =
        seen(&[("canary", GroupPhase::Succeeded, false), ("staging", GroupPhase::Halted(Some(halt)), false)]);
    assert_eq!(halted.groups[1].blocked, [Blocker::Halted { halt: Some(halt) }]);
    assert_eq!(halted.groups[2].blocked, [Blocker::Requires { group: "staging".parse().unwrap() }]);
    assert_eq!((halted.groups[1].opens, halted.ends), (None, None));
    let text = halted.to_text();
    assert!(text.contains("! staging: halted: 2 of 90 failed, limit 1 host"), "{text}");
    assert!(text.contains("! production: requires staging, which does not end"), "{text}");
    assert!(text.ends_with("It does not end by itself."), "{text}");

    let paused = seen(&[("staging", GroupPhase::Waiting, true)]);
    assert_eq!(paused.groups[0].ends, Some(at("2026-03-02T02:02:00Z")), "canary is not held up");
    assert!(
        paused.to_text().contains("! staging: paused 2 h ago: nothing is started"),
        "{}",
        paused.to_text()
    );
    assert_eq!((paused.groups[1].opens, paused.ends), (None, None));

    let done = seen(&["canary", "staging", "production"].map(|name| (name, GroupPhase::Succeeded, true)));
    assert!(
        done.has_succeeded() && done.to_text().ends_with("Every group has succeeded."),
        "{}",
        done.to_text()
    );
}

#[test]
fn hosts_without_a_label_that_is_asked_for_are_named() {
    let mut fleet = fleet();
    fleet.push(Cohort { example: "db-7".into(), node_labels: "role=db".parse().unwrap(), ..hosts(4, "") });
    let seen = preview(&plan(three()), &fleet, &Standing::default(), at(NOW), 60);
    let canary = &seen.groups[0];
    assert_eq!((canary.unanswered, canary.unanswered_examples.len()), (7, 2));
    assert_eq!(canary.unanswered_examples[1].host, "db-7");
    assert_eq!(canary.unanswered_examples[1].label, "environment");
    assert!(seen.to_text().contains("db-7 has no label \"environment\""), "{}", seen.to_text());
    let answered = preview(&plan(three()), &[hosts(3, "elsewhere")], &Standing::default(), at(NOW), 60);
    assert_eq!((answered.groups[0].unanswered, answered.ungrouped), (0, 3), "false is an answer");
    let mut both = three();
    both[0].agents.instance_labels_expression = Some("labels[\"zone\"] == \"eu\"".parse().unwrap());
    let settled = preview(&plan(both), &[hosts(3, "elsewhere")], &Standing::default(), at(NOW), 60);
    assert_eq!(settled.groups[0].unanswered, 0, "where one part is false, the absent label does not matter");
}

#[test]
fn a_preview_lines_up_and_is_json() {
    let seen = previewed(three());
    let expected = "\
Version 15.1.1, schedule regular, as of 2026-03-02 00:00 UTC

GROUP       OPENS                 ZONE  OPENS (UTC)       DONE BY (UTC)     HOSTS  TO DO  HAVE IT  HELD  AWAY   AT ONCE  AFTER
canary      Mon 2026-03-02 02:00  UTC   2026-03-02 02:00  2026-03-02 02:02     10     10        0     0     0   5 (50%)  -
staging     Mon 2026-03-02 02:02  UTC   2026-03-02 02:02  2026-03-02 02:07     90     90        0     0     0  18 (20%)  canary
production  Mon 2026-03-02 03:00  UTC   2026-03-02 03:00  2026-03-02 03:10    442    400       30     5     7  44 (10%)  staging

! canary: does not take 3 hosts because a label is absent: -1 has no label \"environment\", …
! staging: does not take 3 hosts because a label is absent: -1 has no label \"environment\", …
! production: does not take 3 hosts because a label is absent: -1 has no label \"environment\", …
3 of 545 hosts are in no group and follow agent_auto_update; 0 of them have the version.
Done 2026-03-02 03:10 UTC at the earliest, if every host takes 60 s: 3 h 10 min from now.";
    assert_eq!(seen.to_text(), expected);
    let json = serde_json::to_value(&seen).unwrap();
    assert_eq!(json["groups"][2]["limit"], 44);
    assert_eq!(json["groups"][0]["opens"], "2026-03-02T02:00:00Z");
}
