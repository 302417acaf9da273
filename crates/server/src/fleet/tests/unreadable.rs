//! Records of a made-up newer release, which this one cannot read.

use refit_backend::Key;
use refit_testbed::eventually;
use refit_types::GroupState;
use serde_json::{Value, json};

use super::bare::WITHIN;
use super::{Bare, beat, group, host, store};
use crate::fleet::{Fleet, HeartbeatResult, group_key};

/// Rewrites a record as a newer release would.
async fn rewrite(bare: &Bare, key: &Key, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let item = bare.backend.get(key).await.unwrap().unwrap();
    let mut record: Value = serde_json::from_slice(&item.value).unwrap();
    change(&mut record);
    let written = serde_json::to_vec(&record).unwrap();
    bare.backend.put(key, written.clone().into()).await.unwrap();
    written
}

async fn stored(bare: &Bare, key: &Key) -> Vec<u8> {
    bare.backend.get(key).await.unwrap().unwrap().value.to_vec()
}

#[tokio::test]
async fn a_host_record_of_a_newer_release_keeps_its_slot_and_blocks_its_group() {
    let bare = Bare::with_hosts(&store(), 4).await;
    bare.say(vec![group("all", 50)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    let key = Fleet::key(host(1)).unwrap();
    let written = rewrite(&bare, &key, |record| {
        record["upgrade"]["agent_upgrade_outcome"] = json!({"outcome": "quarantined"});
    })
    .await;
    let blocked = async || bare.waiting("all").contains(key.as_str());
    eventually("the group names the record", WITHIN, blocked).await;
    assert!(bare.metrics.encode().contains("refit_unreadable_records{record=\"host\"} 1"));

    assert_eq!(
        bare.hears(1, &beat("1.5.0", 1, 0)).await,
        HeartbeatResult::Known { duplicate: false },
        "not removed"
    );
    assert!(!bare.fleet.view().answer(Some(host(1)), bare.fleet.clock()).auto_update);
    // Another one arrives: that is counted, and nobody starts in its place.
    bare.hears(2, &beat("2.0.0", 2, 0)).await;
    let record = bare.until("all", |record| record.upgraded == 1).await;
    assert_eq!((record.in_flight, record.members), (1, 4));
    let record = bare.settled("all").await;
    assert_eq!((record.in_flight, &record.state), (1, &GroupState::Active), "{record:?}");
    assert_eq!(stored(&bare, &key).await, written, "nobody has touched it");
    let refused = bare.rollouts.remove(host(1), "alice").await.unwrap_err().to_string();
    assert!(refused.contains(key.as_str()) && refused.contains("newer release"), "{refused}");

    rewrite(&bare, &key, |record| {
        record["upgrade"].as_object_mut().unwrap().remove("agent_upgrade_outcome");
    })
    .await;
    let record = bare.until("all", |record| record.in_flight == 2).await;
    assert_eq!(record.upgraded, 1, "it goes on once the record can be read");
    assert!(bare.metrics.encode().contains("refit_unreadable_records{record=\"host\"} 0"));
}

#[tokio::test]
async fn a_host_that_was_never_read_blocks_every_group_and_is_not_removed() {
    let backend = store();
    let key = Fleet::key(host(9)).unwrap();
    backend.put(&key, r#"{"form": 7}"#.into()).await.unwrap();
    let bare = Bare::with_hosts(&backend, 2).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.rollouts.operator_changed().await.unwrap();
    let blocked = async || bare.waiting("all").contains(key.as_str());
    eventually("the group names the record", WITHIN, blocked).await;
    assert_eq!(bare.hears(9, &beat("1.0.0", 9, 0)).await, HeartbeatResult::Known { duplicate: false });
    bare.rollouts.operator_changed().await.unwrap();
    assert!(bare.record("all").await.is_none_or(|record| record.in_flight == 0));
    let refused = bare.fleet.join(host(9), "web", &[refit_types::AgentRole::Node], true).await.unwrap_err();
    assert!(refused.to_string().contains(key.as_str()), "{refused}");
    assert_eq!(stored(&bare, &key).await, br#"{"form": 7}"#);
}

#[tokio::test]
async fn a_group_record_of_a_newer_release_stops_its_group_and_those_behind_it() {
    let bare = Bare::with_hosts(&store(), 2).await;
    let (mut first, mut second) = (group("first", 50), group("second", 100));
    first.agents.node_labels_expression = None;
    second.requires = vec!["first".parse().unwrap()];
    bare.say(vec![first, second], "2.0.0").await;
    bare.until("first", |record| record.in_flight == 1).await;
    let key = group_key(&"first".parse().unwrap()).unwrap();
    let written = rewrite(&bare, &key, |record| record["state"] = json!("soaking")).await;
    let blocked = async || bare.waiting("first").contains(key.as_str());
    eventually("the group names the record", WITHIN, blocked).await;
    assert!(bare.waiting("second").contains("first"), "{}", bare.waiting("second"));
    assert!(bare.metrics.encode().contains("refit_unreadable_records{record=\"group\"} 1"));
    assert!(!bare.fleet.view().answer(Some(host(1)), bare.fleet.clock()).auto_update);
    let refused = bare.rollouts.set_paused(Some("first"), true, "alice").await.unwrap_err().to_string();
    assert!(refused.contains(key.as_str()), "{refused}");
    bare.hears(1, &beat("2.0.0", 1, 0)).await;
    for _ in 0..5 {
        bare.rollouts.operator_changed().await.unwrap();
    }
    assert_eq!(stored(&bare, &key).await, written, "nobody has touched it");

    rewrite(&bare, &key, |record| record["state"] = json!("active")).await;
    bare.until("first", |record| record.upgraded == 1).await;
}

#[tokio::test]
async fn what_operators_said_in_a_newer_form_stops_everything() {
    let bare = Bare::with_hosts(&store(), 2).await;
    bare.say(vec![group("all", 50)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 1).await;
    let now = || bare.fleet.clock();
    let told = async || bare.fleet.view().answer(Some(host(1)), now()).auto_update;
    eventually("it is told", WITHIN, told).await;
    let key = Key::new("/cluster_maintenance_config/v1/default/cluster-maintenance-config").unwrap();
    rewrite(&bare, &key, |record| record["spec"] = json!({"moonshot": true})).await;
    eventually("nobody is told", WITHIN, async || !told().await).await;
    let view = bare.fleet.view();
    assert!(view.rollout.is_none() && view.snapshot.unusable().unwrap().contains(key.as_str()));
    assert_eq!(&*view.advertised, "2.0.0", "what was chosen is still named");
    let before = bare.backend.get(&group_key(&"all".parse().unwrap()).unwrap()).await.unwrap().unwrap();
    bare.hears(2, &beat("2.0.0", 2, 0)).await;
    bare.rollouts.operator_changed().await.unwrap();
    let after = bare.backend.get(&before.key).await.unwrap().unwrap();
    assert_eq!(before.revision, after.revision, "nothing is decided");
}
