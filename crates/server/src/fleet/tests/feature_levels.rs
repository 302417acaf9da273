//! Servers of two feature levels on one store, and what a document that uses nothing new means to both.

use refit_backend::SharedBackend;
use refit_rollout::fingerprint;
use refit_testbed::eventually;
use refit_types::{FeatureLevel, Group, HostLimit, Resource, Schedule, Selector};

use super::bare::WITHIN;
use super::{Bare, beat, group, host, store};
use crate::Features;
use crate::fleet::{plan_key, readable};

/// A made-up newer release: a limit of 7 % is a gate.
fn newer() -> Features {
    let needed = |resource: &Resource| match resource {
        Resource::ClusterMaintenanceConfig(config) => {
            let groups = &config.agent_auto_update_groups.regular;
            let is_gated = |group: &Group| Some(group.max_in_flight) == HostLimit::percent(7);
            FeatureLevel::new(if groups.iter().any(is_gated) { 3 } else { 0 })
        }
        _ => FeatureLevel::NONE,
    };
    Features { level: FeatureLevel::new(3), needed, ..Features::current() }
}

/// The release that knew shares only.
fn older() -> Features {
    Features {
        level: FeatureLevel::new(1),
        needed: |_| FeatureLevel::NONE,
        needed_while_paused: |_| FeatureLevel::NONE,
    }
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
    assert_eq!((plan.epoch, plan.level), (1, FeatureLevel::new(3)), "the level is in the same epoch");
    eventually("the older one stops", WITHIN, async || !told(&old)).await;
    assert!(told(&new) && new.fleet.view().snapshot.unusable().is_none());
    assert!(old.rollouts.status().stopped.contains("feature level 3"));
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

#[tokio::test]
async fn an_older_server_does_not_take_a_number_of_hosts_for_a_percentage() {
    let backend: SharedBackend = store();
    let new = Bare::with_hosts(&backend, 40).await;
    let one = |limit: HostLimit| Group { max_in_flight: limit, ..group("all", 100) };
    new.say(vec![one(HostLimit::Hosts(3))], "2.0.0").await;
    let record = new.until("all", |record| record.in_flight > 0).await;
    assert_eq!(record.in_flight, 3);
    let old = Bare::of_level(&backend, "s2", older());
    old.knows(40).await;
    let told = |bare: &Bare| bare.fleet.view().answer(Some(host(1)), bare.fleet.clock()).auto_update;
    for _ in 0..5 {
        old.rollouts.operator_changed().await.unwrap();
        assert!(!told(&old) && old.rollouts.status().stopped.contains("feature level 2"));
    }
    assert_eq!(new.record("all").await.unwrap().in_flight, 3, "it has started hosts by a limit of its own");
    new.say(vec![one("0.5%".parse().unwrap())], "2.0.0").await;
    new.rollouts.operator_changed().await.unwrap();
    old.rollouts.operator_changed().await.unwrap();
    assert!(old.rollouts.status().stopped.contains("feature level 2"), "a fraction is none of its, either");
    new.say(vec![group("all", 50)], "2.0.0").await;
    new.rollouts.operator_changed().await.unwrap();
    eventually("the older one takes part", WITHIN, async || told(&old)).await;
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
