//! Two releases on one store: what a newer server has written into the records of a rollout is still there
//! when this one has written them.

use std::collections::BTreeMap;

use refit_backend::KeyRange;
use refit_testbed::{lost_newer_fields, with_newer_fields};
use refit_types::{AgentRole, HostRecord};
use serde_json::{Value, json};

use super::*;

/// The records of the hosts and of the rollout, by key.
async fn records(backend: &SharedBackend) -> BTreeMap<Key, Value> {
    let mut records = BTreeMap::new();
    for prefix in ["/instances/v1/default", "/rollouts/v1/default"] {
        let range = KeyRange::below(&Key::new(prefix).unwrap());
        for item in backend.range(&range, 100).await.unwrap().items {
            records.insert(item.key, serde_json::from_slice(&item.value).unwrap());
        }
    }
    records
}

/// A newer server rewrites everything, and this one has seen it.
async fn newer_server_writes(bare: &Bare) -> BTreeMap<Key, Value> {
    let mut written = BTreeMap::new();
    for (key, record) in records(&bare.backend).await {
        let mut record = with_newer_fields(&record);
        if record.get("roles").is_some() {
            record["roles"] = json!(["node", "quantum"]);
        }
        bare.backend.put(&key, record.to_string().into()).await.unwrap();
        written.insert(key, record);
    }
    let known = |n| bare.fleet.known(host(n)).is_none_or(|(known, _)| !known.unknown.is_empty());
    let all_known = async || (1..=4).all(known);
    eventually("what was written is known", WITHIN, all_known).await;
    bare.rollouts.operator_changed().await.unwrap();
    written
}

/// That everything was rewritten since and has kept what the newer server wrote.
async fn assert_kept(bare: &Bare, written: &BTreeMap<Key, Value>, unless_unchanged: &[&str]) {
    let after = records(&bare.backend).await;
    for (key, before) in written {
        let Some(after) = after.get(key) else { continue };
        assert_eq!(lost_newer_fields(before, after), [""; 0], "{key}: {after}");
        assert_eq!(after.get("roles"), before.get("roles"), "{key}");
        let may_be_unchanged = unless_unchanged.iter().any(|part| key.as_str().contains(part));
        assert!(may_be_unchanged || before != after, "{key} was not rewritten");
    }
}

#[tokio::test]
async fn what_a_newer_server_wrote_survives_a_rollout() {
    let bare = Bare::with_hosts(&store(), 4).await;
    bare.say(vec![group("all", 50)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    let written = newer_server_writes(&bare).await;
    assert_eq!(written.len(), 6);

    // Two arrive, the others start; one of these fails, and the other is removed.
    for n in 1..=2 {
        bare.hears(n, &beat("2.0.0", n, 0)).await;
    }
    bare.until("all", |record| record.upgraded == 2 && record.in_flight == 2).await;
    assert_kept(&bare, &written, &["/plan"]).await;
    let mut failing = beat("1.0.0", 3, 0);
    let failure = UpdateFailure {
        attempt: 1,
        version: "2.0.0".parse().unwrap(),
        step: "health".into(),
        reason: "died".into(),
        at: Timestamp::now(),
        agent: None,
    };
    let (last_failure, agent_updates_enabled) = (Some(failure), true);
    failing.report.updater =
        Some(Box::new(UpdaterStatus { last_failure, agent_updates_enabled, ..UpdaterStatus::default() }));
    bare.hears(3, &failing).await;
    bare.until("all", |record| record.is_halted()).await;
    let written = newer_server_writes(&bare).await;
    assert!(written.values().any(|record| record["state"]["halted"]["newer"].is_object()), "{written:?}");

    // What operators do, and another epoch.
    assert!(bare.rollouts.remove(host(4), "alice").await.unwrap());
    bare.rollouts.set_paused(None, true, "alice").await.unwrap();
    bare.rollouts.set_paused(Some("all"), true, "alice").await.unwrap();
    assert_kept(&bare, &written, &["/instances"]).await;
    bare.rollouts.run_group("all", "alice").await.unwrap();
    bare.rollouts.set_paused(None, false, "alice").await.unwrap();
    bare.rollouts.set_paused(Some("all"), false, "alice").await.unwrap();
    bare.say(vec![group("all", 100)], "3.0.0").await;
    bare.until("all", |record| record.epoch == 2 && record.in_flight == 3).await;
    assert_kept(&bare, &written, &[]).await;
    let item = bare.backend.get(&Fleet::key(host(3)).unwrap()).await.unwrap().unwrap();
    let upgrade = serde_json::from_slice::<HostRecord>(&item.value).unwrap().upgrade.unwrap();
    assert!(upgrade.epoch == 2 && !upgrade.unknown.is_empty());
}

#[tokio::test]
async fn what_a_newer_server_wrote_survives_joining_again() {
    let bare = Bare::with_hosts(&store(), 1).await;
    let written = newer_server_writes(&bare).await;
    bare.fleet.join(host(1), "web", &[AgentRole::Kube], true).await.unwrap();
    let known = bare.fleet.known(host(1)).unwrap().0;
    let roles: Vec<&str> = known.roles.iter().map(|role| role.as_str()).collect();
    assert_eq!(roles, ["node", "kube", "quantum"]);
    let after = records(&bare.backend).await;
    for (key, before) in &written {
        assert_eq!(lost_newer_fields(before, &after[key]), [""; 0], "{key}");
    }
}
