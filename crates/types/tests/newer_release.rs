//! Records that a newer release has written: what this one does not know of them is written back.

#![allow(clippy::unwrap_used)]

use refit_types::{
    AgentRole, Edition, GroupRecord, GroupState, HaltCause, HostRecord, Outcome, RolloutRecord, StoredWord,
    UnknownFields,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// With every field that there is.
fn host() -> Value {
    json!({
        "host_id": "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55", "hostname": "web-1", "roles": ["node", "kube"],
        "first_seen": "2026-07-01T04:00:00Z", "last_seen": "2026-07-02T04:00:00Z",
        "report": {
            "version": "15.1.1", "edition": "oss", "node_labels": { "a": "b" }, "instance_labels": { "c": "d" },
            "upgrader": "binary",
            "updater": {
                "agent_version_installed": "15.1.1", "agent_version_desired": "15.1.1",
                "agent_version_previous": "15.1.0", "agent_edition_installed": "oss",
                "agent_edition_desired": "oss", "agent_edition_previous": "enterprise",
                "agent_update_time_last": "2026-07-02T04:00:00Z", "agent_update_time_jitter": 600,
                "agent_updates_enabled": true, "pinned_version": "15.1.1", "held": "disk full", "failures": 2,
                "last_failure": {
                    "attempt": 3, "version": "15.1.2", "step": "health", "reason": "died",
                    "at": "2026-07-02T03:00:00Z"
                }
            },
            "session": { "id": "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a56", "started_at": "2026-07-02T04:00:00Z" },
            "rotation": { "id": "r", "phase": "init" }, "hint_acknowledged": 3
        },
        "server": "s1", "identity_expires": "2026-08-02T04:00:00Z", "duplicate_at": "2026-07-02T04:00:00Z",
        "upgrade": {
            "agent_upgrade_epoch": 3, "agent_upgrade_group_schedule": "regular", "agent_upgrade_group_name": "web",
            "agent_upgrade_group_start_time": "2026-07-02T04:00:00Z",
            "agent_upgrade_group_end_time": "2026-07-02T08:00:00Z",
            "agent_upgrade_start_time": "2026-07-02T04:01:00Z", "agent_upgrade_attempt": 3,
            "agent_upgrade_round": 1,
            "agent_upgrade_outcome": { "outcome": "failed", "at": "2026-07-02T04:05:00Z", "reason": "died" }
        },
        "past": [
            { "at": "2026-06-01T04:05:00Z", "from": "15.1.0", "to": "15.1.1" },
            { "at": "2026-07-02T04:05:00Z", "from": "15.1.1", "to": "15.1.2", "failure": "health: died" }
        ]
    })
}

fn group() -> Value {
    let span = json!({ "start": "2026-07-02T04:00:00Z", "end": "2026-07-02T08:00:00Z" });
    json!({
        "epoch": 3, "state": { "halted": { "cause": "timed_out", "count": 2, "members": 10, "limit": "10%" } },
        "since": "2026-07-02T04:00:00Z", "window": span, "closed": "2026-07-01T04:00:00Z", "admitting": true,
        "sealed": true, "run": span, "round": 1, "paused": "2026-07-02T04:00:00Z", "members": 10, "removed": 1,
        "in_flight": 2, "upgraded": 3, "failed": 1, "timed_out": 2
    })
}

fn plan() -> Value {
    json!({
        "epoch": 3, "fingerprint": "f", "version": "15.1.1", "schedule": "regular",
        "began_at": "2026-07-02T04:00:00Z", "paused": "2026-07-02T04:00:00Z"
    })
}

/// Adds an unknown field to every object; how many there are.
fn add_newer_fields(value: &mut Value, name: &str) -> usize {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().map(|element| add_newer_fields(element, "")).sum::<usize>()
        }
        Value::Object(fields) => {
            let below: usize = fields.iter_mut().map(|(name, value)| add_newer_fields(value, name)).sum();
            // The keys of labels are not fields, and the object of an enum has one key.
            if ["node_labels", "instance_labels", "state"].contains(&name) {
                return below;
            }
            fields.insert("newer \"field\"".into(), json!({ "in": name, "list": [1.5, null, { "a": [] }] }));
            below + 1
        }
        _ => 0,
    }
}

fn rewritten<T: Serialize + DeserializeOwned>(document: &Value) -> Value {
    // From text: there, names may be borrowed or not.
    let record: T = serde_json::from_slice(&serde_json::to_vec(document).unwrap()).unwrap();
    serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap()
}

#[test]
fn a_record_is_written_back_as_it_was_read_with_unknown_fields_at_every_depth() {
    assert_kept::<HostRecord>(host(), 10);
    assert_kept::<GroupRecord>(group(), 4);
    assert_kept::<RolloutRecord>(plan(), 1);
}

fn assert_kept<T: Serialize + DeserializeOwned>(mut document: Value, objects: usize) {
    assert_eq!(rewritten::<T>(&document), document);
    assert_eq!(add_newer_fields(&mut document, "record"), objects);
    assert_eq!(rewritten::<T>(&document), document);
}

#[test]
fn what_was_inside_of_something_that_is_gone_goes_with_it() {
    let (mut host, mut group) = (host(), group());
    add_newer_fields(&mut host, "");
    add_newer_fields(&mut group, "");
    let mut host: HostRecord = serde_json::from_value(host).unwrap();
    host.report.as_mut().unwrap().updater = None;
    host.upgrade.as_mut().unwrap().clear_outcome();
    let written = serde_json::to_value(&host).unwrap();
    assert!(
        written["report"].get("updater").is_none() && written["upgrade"].get("newer \"field\"").is_some()
    );
    let at = host.last_seen;
    host.upgrade.as_mut().unwrap().outcome = Some(Outcome::Upgraded { at });
    let written = serde_json::to_value(&host).unwrap();
    let outcome = json!({ "outcome": "upgraded", "at": "2026-07-02T04:00:00Z" });
    assert_eq!(written["upgrade"]["agent_upgrade_outcome"], outcome, "not those of another attempt");

    let group: GroupRecord = serde_json::from_value(group).unwrap();
    let moved = GroupRecord { state: GroupState::Active, window: None, ..group.clone() };
    let written = serde_json::to_value(&moved).unwrap();
    assert_eq!((&written["state"], written.get("window")), (&json!("active"), None));
    let renewed = serde_json::to_value(group.renewed(4, at)).unwrap();
    assert_eq!((&renewed["epoch"], renewed["newer \"field\""]["in"].as_str()), (&json!(4), Some("")));
    assert_eq!(renewed["paused"], "2026-07-02T04:00:00Z");
}

#[test]
fn words_that_only_describe_are_kept_as_they_are() {
    let mut document = host();
    document["roles"] = json!(["node", "quantum"]);
    document["report"]["edition"] = json!("community");
    document["report"]["upgrader"] = json!("flatpak");
    document["report"]["rotation"]["phase"] = json!("update_everybody");
    for field in ["installed", "desired", "previous"] {
        document["report"]["updater"][format!("agent_edition_{field}")] = json!("community");
    }
    assert_eq!(rewritten::<HostRecord>(&document), document);
    let host: HostRecord = serde_json::from_value(document).unwrap();
    assert_eq!(host.roles[0], StoredWord::Known(AgentRole::Node));
    assert_eq!(host.roles[1].as_str(), "quantum");
    assert_eq!(host.report.unwrap().edition.to_string(), "community");
}

#[test]
fn a_record_is_unreadable_if_what_a_rollout_depends_on_is_not_known() {
    let readable = |document: Value| serde_json::from_value::<HostRecord>(document).is_ok();
    for (field, value) in [
        ("agent_upgrade_group_schedule", json!("lunar")),
        ("agent_upgrade_outcome", json!({ "outcome": "skipped", "at": "2026-07-02T04:05:00Z" })),
        ("agent_upgrade_outcome", json!({ "outcome": "failed", "at": "2026-07-02T04:05:00Z" })),
        (
            "agent_upgrade_outcome",
            json!({ "outcome": "upgraded", "at": "2026-07-02T04:05:00Z", "reason": "" }),
        ),
    ] {
        let mut document = host();
        document["upgrade"][field] = value;
        assert!(!readable(document), "{field}");
    }
    let halt = json!({ "cause": "too_slow", "count": 2, "members": 10, "limit": "10%" });
    let mut known = halt.clone();
    known["cause"] = json!("failed");
    let states = [
        json!("draining"),
        json!({ "draining": {} }),
        json!({ "halted": halt }),
        json!({ "halted": known, "newer": {} }),
    ];
    for state in states {
        let mut document = group();
        document["state"] = state.clone();
        assert!(serde_json::from_value::<GroupRecord>(document).is_err(), "{state}");
    }
    let mut document = plan();
    document["schedule"] = json!("lunar");
    assert!(serde_json::from_value::<RolloutRecord>(document).is_err());
    let group: GroupRecord = serde_json::from_value(group()).unwrap();
    assert!(matches!(group.state, GroupState::Halted(halt) if halt.cause == HaltCause::TimedOut));
}

#[test]
fn knowing_everything_costs_little() {
    assert_eq!(size_of::<UnknownFields>(), size_of::<usize>());
    assert_eq!(size_of::<Option<StoredWord<Edition>>>(), 2 * size_of::<usize>());
    let host: HostRecord = serde_json::from_value(host()).unwrap();
    assert!(host.unknown.is_empty() && host.upgrade.unwrap().unknown.is_empty());
}
