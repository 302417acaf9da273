//! The resources of rollouts as documents: defaults, what is accepted, and every kind of error word by word.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use refit_types::{ClusterMaintenanceConfig, HostLimit, Kind, Resource};
use serde_json::{Value, json};

fn config(spec: Value) -> Result<Resource, Vec<String>> {
    let document = json!({ "kind": "cluster_maintenance_config", "spec": spec });
    let read = Resource::from_document(document).map(|(resource, _)| resource);
    read.map_err(|errors| errors.to_string().lines().map(Into::into).collect())
}

/// What is wrong with the regular groups, without the beginning that is common to all.
fn errors_of(groups: Value) -> Vec<String> {
    let errors = config(json!({ "agent_auto_update_groups": { "regular": groups } })).unwrap_err();
    let strip = |error: &String| error.trim_start_matches("spec.agent_auto_update_groups.").to_owned();
    errors.iter().map(strip).collect()
}

fn full(resource: &Resource) -> Value {
    serde_json::to_value(resource.full_document(None)).unwrap()
}

fn compact(resource: &Resource) -> Value {
    serde_json::to_value(resource.document(None)).unwrap()
}

#[test]
fn plain_documents_are_accepted_and_every_default_can_be_shown() {
    let schedule = json!({
        "days": ["*"], "start_hour": 0, "jitter_seconds": 0, "timezone": "UTC", "window_hours": 4,
    });
    let resource = config(json!({ "agent_auto_update_groups": { "regular": [{ "name": "all" }] } })).unwrap();
    assert_eq!(
        full(&resource),
        json!({
            "kind": "cluster_maintenance_config",
            "version": "v1",
            "metadata": { "name": "cluster-maintenance-config" },
            "spec": {
                "agent_auto_update": {
                    "enabled": true, "immediate": { "jitter_seconds": 0 }, "regular": schedule, "critical": schedule,
                },
                "agent_auto_update_groups": {
                    "regular": [{
                        "name": "all", "agents": {}, "days": ["*"], "start_hour": 0, "jitter_seconds": 0,
                        "timezone": "UTC", "window_hours": 4, "max_in_flight": "100%", "timeout_seconds": 60,
                        "failure_seconds": 0, "max_failed_before_halt": "0%", "max_timeout_before_halt": "10%",
                        "requires": [], "allow_empty": false,
                    }],
                    "critical": [],
                },
            },
        })
    );
    assert_eq!(
        compact(&resource)["spec"],
        json!({ "agent_auto_update_groups": { "regular": [{ "name": "all" }] } })
    );
    let (again, _) = Resource::from_document(full(&resource)).unwrap();
    assert_eq!(again, resource, "what is shown can be stored");
    let default = Resource::from(ClusterMaintenanceConfig::default());
    assert_eq!(config(json!({})).unwrap(), default);
    assert_eq!(config(json!({ "agent_auto_update": true })).unwrap(), default);
    assert_eq!(compact(&default)["spec"], json!({}));
    let off = config(json!({ "agent_auto_update": false })).unwrap();
    assert_eq!(compact(&off)["spec"], json!({ "agent_auto_update": false }));

    let version = json!({ "kind": "autoupdate_version", "spec": { "agent_version": "15.1.1" } });
    let (version, _) = Resource::from_document(version).unwrap();
    assert_eq!((version.kind(), version.name()), (Kind::AutoupdateVersion, "autoupdate-version"));
    assert_eq!(
        compact(&version)["spec"],
        json!({ "agent_version": "15.1.1", "agent_version_schedule": "regular" })
    );
}

#[test]
fn a_document_with_everything_comes_back_as_it_was_written() {
    let spec = json!({
        "agent_auto_update": {
            "enabled": false,
            "immediate": { "jitter_seconds": 600 },
            "regular": { "days": ["Mon", "Sun"], "start_hour": 3 },
            "critical": { "jitter_seconds": 3600, "timezone": "Europe/Berlin", "window_hours": 24 },
        },
        "agent_auto_update_groups": {
            "regular": [
                {
                    "name": "staging-group",
                    "agents": {
                        "node_labels_expression": "labels[\"environment\"]==\"staging\"",
                        "instance_labels_expression": "has(labels.arch)",
                    },
                    "days": ["Tue", "Sat"], "start_hour": 23, "jitter_seconds": 60, "timezone": "Asia/Kolkata",
                    "window_hours": 6, "max_in_flight": "25%", "timeout_seconds": 900, "failure_seconds": 1,
                    "max_failed_before_halt": "5%", "max_timeout_before_halt": "0%",
                },
                { "name": "prod-group", "requires": ["staging-group"] },
            ],
            "critical": [{ "name": "staging-group" }],
        },
    });
    let resource = config(spec.clone()).unwrap();
    assert_eq!(compact(&resource)["spec"], spec);
    assert_eq!(Resource::from_document(full(&resource)).unwrap().0, resource);
}

#[test]
fn a_plain_number_is_a_number_of_hosts_and_a_percentage_a_share() {
    for field in ["max_in_flight", "max_failed_before_halt", "max_timeout_before_halt"] {
        let share = |text: &str| HostLimit::Share(text.parse().unwrap());
        for (said, meant, written) in [
            (json!(5), HostLimit::Hosts(5), "5 hosts"),
            (json!("5"), HostLimit::Hosts(5), "5 hosts"),
            (json!(1), HostLimit::Hosts(1), "1 host"),
            (json!(5000), HostLimit::Hosts(5000), "5000 hosts"),
            (json!("5 hosts"), HostLimit::Hosts(5), "5 hosts"),
            (json!("5%"), share("5%"), "5%"),
            (json!("0.5%"), share("0.5%"), "0.5%"),
            (json!("12.50%"), share("12.5%"), "12.5%"),
        ] {
            let group = json!([{ "name": "a", field: said }]);
            let resource = config(json!({ "agent_auto_update_groups": { "regular": group } })).unwrap();
            let Resource::ClusterMaintenanceConfig(read) = &resource else { panic!("{resource:?}") };
            let read = &read.agent_auto_update_groups.regular[0];
            let limit = match field {
                "max_in_flight" => read.max_in_flight,
                "max_failed_before_halt" => read.max_failed_before_halt,
                _ => read.max_timeout_before_halt,
            };
            assert_eq!(limit, meant, "{field}: {said}");
            let compact = compact(&resource);
            assert_eq!(compact["spec"]["agent_auto_update_groups"]["regular"][0][field], written);
            assert_eq!(Resource::from_document(compact).unwrap().0, resource);
        }
    }
}

/// As release 0.1 stores it, byte for byte: it wrote a share for `25`, `"25"` and `"25%"` alike.
const STORED_BY_0_1: &str = r#"{"kind":"cluster_maintenance_config","version":"v1","metadata":{"name":"cluster-maintenance-config"},"spec":{"agent_auto_update_groups":{"regular":[{"name":"a","max_in_flight":"25%","max_failed_before_halt":"5%","max_timeout_before_halt":"0%"},{"name":"b","max_in_flight":"0%","max_failed_before_halt":"100%","requires":["a"]}]}}}"#;

#[test]
fn what_is_stored_keeps_its_meaning() {
    let (resource, _) = Resource::from_document(serde_json::from_str(STORED_BY_0_1).unwrap()).unwrap();
    let Resource::ClusterMaintenanceConfig(config) = &resource else { panic!("{resource:?}") };
    let groups = &config.agent_auto_update_groups.regular;
    let limits = |group: &refit_types::Group| {
        [group.max_in_flight, group.max_failed_before_halt, group.max_timeout_before_halt]
    };
    let percent = |number| HostLimit::percent(number).unwrap();
    assert_eq!(limits(&groups[0]), [percent(25), percent(5), percent(0)]);
    assert_eq!(limits(&groups[1]), [percent(0), percent(100), percent(10)]);
    assert_eq!(serde_json::to_string(&resource.document(None)).unwrap(), STORED_BY_0_1);
    let halt: refit_types::Halt =
        serde_json::from_str(r#"{"cause":"failed","count":2,"members":20,"limit":"5%"}"#).unwrap();
    assert_eq!((halt.limit, halt.to_string().as_str()), (percent(5), "2 of 20 failed, limit 5%"));
    let counted = refit_types::Halt { limit: HostLimit::Hosts(1), ..halt };
    assert_eq!(counted.to_string(), "2 of 20 failed, limit 1 host");
}

#[test]
fn every_error_of_a_field_is_told_with_its_place_at_once() {
    assert_eq!(
        errors_of(json!([
            { "name": "a", "max_in_flight": "101%", "max_failed_before_halt": 0.5, "max_timeout_before_halt": true },
            { "agents": { "node": "x", "node_labels_expression": 7, "instance_labels_expression": "labels.a" } },
            { "name": "no good", "days": ["Mon", "Tag", 5], "start_hour": 24, "jitter_seconds": 3601 },
            { "name": "d", "days": [], "timezone": "Mars", "window_hours": 0, "timeout_seconds": 29, "colour": "red" },
            { "name": "e", "days": "*", "failure_seconds": 901, "requires": "a", "start_hour": 1.5, "agents": [] },
            { "name": 6, "days": ["*", "Mon"], "requires": [1, "x y"], "timeout_seconds": "60" },
            "g",
        ])),
        [
            "regular[0].max_in_flight: expected a share from 0% to 100%, like 5% or 0.5%, or a whole number of hosts, \
             like 5, found \"101%\"",
            "regular[0].max_failed_before_halt: expected a share from 0% to 100%, like 5% or 0.5%, or a whole number \
             of hosts, like 5, found 0.5",
            "regular[0].max_timeout_before_halt: expected a share from 0% to 100%, like 5% or 0.5%, or a whole number \
             of hosts, like 5, found true",
            "regular[1].name: is missing",
            "regular[1].agents.node_labels_expression: expected a text, found 7",
            "regular[1].agents.instance_labels_expression: \"labels.a\" is not an expression over labels: a text is \
             neither true nor false; expected labels[\"NAME\"] or labels.NAME compared with texts by ==, !=, in, \
             startsWith, endsWith or contains, has(labels.NAME), \"NAME\" in labels, true and false, joined by &&, \
             ||, ! and parentheses",
            "regular[1].agents.node: is not a known field; expected one of node_labels_expression, \
             instance_labels_expression",
            "regular[2].name: \"no good\" is not a group name; expected 1 to 64 letters, digits, '.', '_' and '-' \
             that start with a letter or digit",
            "regular[2].days[1]: expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun, or only \"*\", found \"Tag\"",
            "regular[2].days[2]: expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun, or only \"*\", found 5",
            "regular[2].start_hour: expected a whole number from 0 to 23, found 24",
            "regular[2].jitter_seconds: expected a whole number from 0 to 3600, found 3601",
            "regular[3].days: is empty; expected days, or \"*\" for all",
            "regular[3].timezone: \"Mars\" is not a time zone; expected an IANA name, like Europe/Berlin",
            "regular[3].window_hours: expected a whole number from 1 to 24, found 0",
            "regular[3].timeout_seconds: expected a whole number from 30 to 900, found 29",
            "regular[3].colour: is not a known field; expected one of name, agents, days, start_hour, jitter_seconds, \
             timezone, window_hours, max_in_flight, timeout_seconds, failure_seconds, max_failed_before_halt, \
             max_timeout_before_halt, requires, allow_empty",
            "regular[4].agents: expected a map, found []",
            "regular[4].days: expected a list of days, found \"*\"",
            "regular[4].start_hour: expected a whole number from 0 to 23, found 1.5",
            "regular[4].failure_seconds: expected a whole number from 0 to 900, found 901",
            "regular[4].requires: expected a list of names of groups, found \"a\"",
            "regular[5].name: expected a text, found 6",
            "regular[5].days[0]: expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun, or only \"*\", found \"*\"",
            "regular[5].timeout_seconds: expected a whole number from 30 to 900, found \"60\"",
            "regular[5].requires[0]: expected a text, found 1",
            "regular[5].requires[1]: \"x y\" is not a group name; expected 1 to 64 letters, digits, '.', '_' and '-' \
             that start with a letter or digit",
            "regular[6]: expected a map, found \"g\"",
            "regular[6].name: is missing",
        ]
    );
}

#[test]
fn errors_outside_groups_are_told_too() {
    let document = json!({
        "kind": "cluster_maintenance_config", "version": "v2",
        "metadata": { "name": "other", "description": "x".repeat(257) },
        "spec": {
            "agent_auto_update": { "enabled": 1, "immediate": { "jitter_seconds": -1, "days": [] }, "weekly": {} },
            "agent_auto_update_groups": { "immediate": [], "critical": {} },
            "extra": 1,
        },
    });
    let errors = Resource::from_document(document).unwrap_err().to_string();
    assert_eq!(
        errors.lines().collect::<Vec<_>>(),
        [
            "version: \"v2\" is not a version of cluster_maintenance_config; expected v1",
            "metadata.name: \"other\" is not the name of the cluster_maintenance_config; expected \
             cluster-maintenance-config, or none",
            "metadata.description: is longer than the 256 characters that are allowed",
            "spec.agent_auto_update.enabled: expected true or false, found 1",
            "spec.agent_auto_update.immediate.jitter_seconds: expected a whole number from 0 to 3600, found -1",
            "spec.agent_auto_update.immediate.days: is not a known field; expected one of jitter_seconds",
            "spec.agent_auto_update.weekly: is not a known field; expected one of enabled, immediate, regular, critical",
            "spec.agent_auto_update_groups.critical: expected a list of groups, found {}",
            "spec.agent_auto_update_groups.immediate: is not a known field; expected one of regular, critical",
            "spec.extra: is not a known field; expected one of agent_auto_update, agent_auto_update_groups",
        ]
    );
    assert_eq!(
        config(json!({ "agent_auto_update": "on" })).unwrap_err(),
        ["spec.agent_auto_update: expected true, false or a map, found \"on\""]
    );
    let version = json!({
        "kind": "autoupdate_version", "metadata": { "name": "x" }, "spec": { "agent_version_schedule": "soon" },
    });
    assert_eq!(
        Resource::from_document(version).unwrap_err().to_string().lines().collect::<Vec<_>>(),
        [
            "metadata.name: \"x\" is not the name of the autoupdate_version; expected autoupdate-version, or none",
            "spec.agent_version: is missing",
            "spec.agent_version_schedule: \"soon\" is not a schedule; expected regular, critical, immediate",
        ]
    );
}

#[test]
fn groups_that_cannot_follow_each_other_are_refused() {
    assert_eq!(
        errors_of(json!([
            { "name": "a", "requires": ["a", "b", "b", "x"] }, { "name": "b" }, { "name": "a" },
        ])),
        [
            "regular[2].name: \"a\" is the name of regular[0] already",
            "regular[0].requires[0]: \"a\" is the group itself",
            "regular[0].requires[2]: \"b\" stands there twice",
            "regular[0].requires[3]: \"x\" is not a group of this schedule; expected one of a, b",
        ]
    );
    assert_eq!(
        errors_of(json!([{ "name": "a", "requires": ["b"] }, { "name": "b", "requires": ["a"] }])),
        ["regular[0].requires: the groups require each other in a circle: a -> b -> a"]
    );
    assert_eq!(
        errors_of(json!([
            { "name": "z", "requires": ["d"] }, { "name": "b", "requires": ["c", "ok"] }, { "name": "ok" },
            { "name": "c", "requires": ["d"] }, { "name": "d", "requires": ["b"] },
        ])),
        ["regular[1].requires: the groups require each other in a circle: b -> c -> d -> b"]
    );
    // Together with everything else that is wrong, and also when a name is used twice.
    assert_eq!(
        errors_of(json!([
            { "name": "a", "requires": ["b"] }, { "name": "b", "requires": ["x"] },
            { "name": "b", "requires": ["a"], "start_hour": 24 },
            { "name": "c", "requires": ["d"] }, { "name": "d", "requires": ["c", "d"] }, { "requires": ["a"] },
        ])),
        [
            "regular[2].start_hour: expected a whole number from 0 to 23, found 24",
            "regular[5].name: is missing",
            "regular[2].name: \"b\" is the name of regular[1] already",
            "regular[1].requires[0]: \"x\" is not a group of this schedule; expected one of a, b, c, d",
            "regular[4].requires[1]: \"d\" is the group itself",
            "regular[0].requires: the groups require each other in a circle: a -> b -> a",
            "regular[3].requires: the groups require each other in a circle: c -> d -> c",
        ]
    );
    let many: Vec<Value> = (0..33).map(|n| json!({ "name": format!("g{n}") })).collect();
    assert_eq!(errors_of(json!(many)), ["regular: has 33 groups; at most 32 are allowed"]);
    assert!(config(json!({ "agent_auto_update_groups": { "regular": many[..32] } })).is_ok());
}

fn day(name: &str, day: &str, hour: u8, requires: &[&str]) -> Value {
    json!({ "name": name, "days": [day], "start_hour": hour, "requires": requires })
}

fn fits(groups: Value) -> bool {
    config(json!({ "agent_auto_update_groups": { "critical": groups } })).is_ok()
}

#[test]
fn a_chain_may_take_a_week_and_no_longer() {
    let chain =
        |hour| json!([day("a", "Mon", 10, &[]), day("b", "Sun", 0, &["a"]), day("c", "Mon", hour, &["b"])]);
    assert!(fits(chain(9)) && fits(chain(10)));
    assert_eq!(
        errors_of(chain(11)),
        [
            "regular[2].requires: the chain a -> b -> c takes longer than a week: begun on Mon 2026-01-05 10:00 UTC, it \
          comes to c on Mon 2026-01-12 11:00 UTC; at most 7 days are allowed"
        ]
    );
    // A group that follows one that is too late already is not told again.
    let mut four = chain(11);
    four.as_array_mut().unwrap().push(day("d", "Tue", 0, &["c"]));
    assert_eq!(errors_of(four).len(), 1);
    // At or after: a group that opens with the one before need not wait.
    assert!(fits(json!([day("a", "Mon", 10, &[]), day("b", "Mon", 10, &["a"]), day("c", "Mon", 9, &["b"])])));
    // Only one of the first group's windows leads too far.
    let mut often = chain(11);
    often[0]["days"] = json!(["Sat", "Mon"]);
    assert!(!fits(often));
    // A window that is open already counts: 6 days and 9 hours from Monday 15:00, and no more if c lasts until Monday.
    let late = |hours| {
        json!([
            { "name": "a", "start_hour": 15 },
            day("b", "Mon", 0, &["a"]),
            { "name": "c", "start_hour": 23, "window_hours": hours, "requires": ["b"] },
        ])
    };
    assert!(fits(late(4)) && fits(late(2)));
    assert_eq!(
        errors_of(late(1)),
        [
            "regular[2].requires: the chain a -> b -> c takes longer than a week: begun on Mon 2026-01-05 15:00 UTC, it \
             comes to c on Mon 2026-01-12 23:00 UTC; at most 7 days are allowed"
        ]
    );
    // Of two ways to a group the longer counts, whichever stands first.
    for requires in [["a", "b"], ["b", "a"]] {
        assert!(!fits(json!([
            day("a", "Mon", 10, &[]),
            day("b", "Sun", 0, &["a"]),
            day("c", "Mon", 11, &requires),
        ])));
    }
    assert!(!fits(json!([
        day("c", "Mon", 11, &["b"]),
        day("b", "Sun", 0, &["a"]),
        day("a", "Mon", 10, &[])
    ])));
}

#[test]
fn a_week_in_which_clocks_change_is_a_week() {
    let zoned = |mut group: Value, zone: &str| {
        group["timezone"] = json!(zone);
        group
    };
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"] {
        let groups = json!([
            zoned(day("a", "Mon", 10, &[]), zone),
            zoned(day("b", "Sun", 0, &["a"]), zone),
            zoned(day("c", "Mon", 10, &["b"]), zone),
        ]);
        assert!(fits(groups), "{zone}");
    }
}

#[test]
fn the_largest_resources_are_judged_quickly() {
    let names: Vec<String> = (0..32).map(|n| format!("g{n}")).collect();
    let dense: Vec<Value> = (0..32).map(|n| json!({ "name": names[n], "requires": names[..n] })).collect();
    let flat: Vec<Value> = (0..32)
        .map(|n| json!({ "name": names[n], "requires": if n < 16 { &[][..] } else { &names[..16] } }))
        .collect();
    let invalid = json!(vec!["x"; 200_000]);
    let began = Instant::now();
    assert!(fits(json!(dense)) && fits(json!(flat)));
    let errors = errors_of(json!([{ "name": "a", "days": invalid }]));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(errors.len(), 101);
}
