//! Servers of two feature levels on one store, and what a document that uses nothing new means to both.

use refit_backend::SharedBackend;
use refit_rollout::fingerprint;
use refit_testbed::eventually;
use refit_types::{FeatureLevel, Group, Resource, Schedule, Selector};

use super::bare::WITHIN;
use super::{Bare, beat, group, host, store};
use crate::Features;
use crate::fleet::{plan_key, readable};

/// A made-up newer release: a limit of 7 % is a gate.
fn newer() -> Features {
    let needed = |resource: &Resource| match resource {
        Resource::ClusterMaintenanceConfig(config) => {
            let groups = &config.agent_auto_update_groups.regular;
            FeatureLevel::new(if groups.iter().any(|group| group.max_in_flight.get() == 7) { 2 } else { 0 })
        }
        _ => FeatureLevel::NONE,
    };
    Features { level: FeatureLevel::new(2), needed }
}

#[tokio::test]
async fn a_server_below_the_level_in_use_decides_nothing_and_tells_nobody() {
    let backend: SharedBackend = store();
    let old = Bare::with_hosts(&backend, 4).await;
    let new = Bare::of_level(&backend, "s2", newer());
    new.knows(4).await;
    old.say(vec![group("all", 50)], "2.0.0").await;
    old.until("all", |record| record.in_flight == 2).await;
    let told = |bare: &Bare| bare.fleet.view().answer(Some(host(1)), bare.fleet.clock()).auto_update;
    eventually("both tell it", WITHIN, async || {
        new.rollouts.operator_changed().await.unwrap();
        told(&old) && told(&new)
    })
    .await;

    // A limit that only the newer one knows, in the same epoch.
    new.say(vec![group("all", 7)], "2.0.0").await;
    new.rollouts.operator_changed().await.unwrap();
    let view = new.fleet.view();
    let plan = readable(&view.snapshot.plan).unwrap();
    assert_eq!((plan.epoch, plan.level), (1, FeatureLevel::new(2)), "the level is in the same epoch");
    eventually("the older one stops", WITHIN, async || !told(&old)).await;
    assert!(told(&new) && new.fleet.view().snapshot.unusable().is_none());
    assert!(old.rollouts.status().stopped.contains("feature level 2"));
    let revision = async || backend.get(&plan_key().unwrap()).await.unwrap().unwrap().revision;
    let before = (old.record("all").await.unwrap(), revision().await);
    old.hears(1, &beat("2.0.0", 1, 0)).await;
    for _ in 0..5 {
        old.rollouts.operator_changed().await.unwrap();
    }
    assert_eq!((old.record("all").await.unwrap(), revision().await), before, "it has decided something");
    let record = new.until("all", |record| record.upgraded == 1).await;
    assert_eq!(record.in_flight, 1, "the newer one goes on, under the new limit");

    // Without the gate both take part again, and no epoch began in between.
    new.say(vec![group("all", 50)], "2.0.0").await;
    new.rollouts.operator_changed().await.unwrap();
    eventually("the older one takes part", WITHIN, async || old.fleet.view().rollout.is_some()).await;
    assert_eq!(readable(&old.fleet.view().snapshot.plan).unwrap().epoch, 1);
    old.until("all", |record| record.in_flight == 2).await;
}

/// Written down, not worked out: servers of two releases that disagree about it begin epochs against each other.
#[test]
fn the_fingerprint_of_a_document_that_uses_nothing_new_never_changes() {
    let mut config = refit_types::ClusterMaintenanceConfig::default();
    let version = "15.1.1".parse().unwrap();
    let of = |config: &_, schedule| fingerprint(&version, schedule, config);
    assert_eq!(of(&config, Schedule::Regular), "725f227b963710a9886b605ef28a34e7");
    let canary = Group {
        agents: Selector {
            node_labels_expression: Some("labels[\"environment\"] == \"staging\"".parse().unwrap()),
            ..Selector::default()
        },
        ..Group::named("canary".parse().unwrap())
    };
    let rest = Group { requires: vec!["canary".parse().unwrap()], ..Group::named("rest".parse().unwrap()) };
    config.agent_auto_update_groups.regular = vec![canary, rest];
    assert_eq!(of(&config, Schedule::Regular), "5147240e8e1010468fc6d224aadcc9ae");
    assert_eq!(of(&config, Schedule::Critical), "94a55988a1322416f7d256d01f2d2920");
}
