//! A server that has just started does not know its hosts yet: what depends on all of them waits, or says so.

use refit_backend::SharedBackend;
use refit_testbed::publish;
use refit_types::{ClusterMaintenanceConfig, Edition, Group, Platform, Selector};

use super::{Bare, beat, group, store};
use crate::artifacts::{Missing, Published, PublishedError};

/// A store with a host of another platform than this one.
async fn with_a_mainframe() -> SharedBackend {
    let backend: SharedBackend = store();
    let mut heartbeat = beat("1.0.0", 1, 0);
    heartbeat.report.platform = Some(Box::new(Platform::new("linux", "debian 13", "s390x").unwrap()));
    let before = Bare::with_hosts(&backend, 0).await;
    before.joins(1).await;
    before.hears(1, &heartbeat).await;
    backend
}

fn staging() -> ClusterMaintenanceConfig {
    let expression = Some("labels[\"environment\"] == \"staging\"".parse().unwrap());
    let agents = Selector { node_labels_expression: expression, ..Selector::default() };
    let mut config = ClusterMaintenanceConfig::default();
    config.agent_auto_update_groups.regular = vec![Group { agents, ..group("staging", 100) }];
    config
}

#[tokio::test]
async fn the_platforms_of_all_hosts_are_waited_for() {
    let (backend, directory) = (with_a_mainframe().await, tempfile::tempdir().unwrap());
    publish(directory.path(), &["2.0.0"]);
    // The owner of the fleet runs only when this test waits for something.
    let started = Bare::new(&backend, "s2");
    let published = Published::new(directory.path().into(), started.fleet.clone(), Edition::Oss);
    assert!(!started.fleet.is_loaded());
    let missing = published.missing(&"2.0.0".parse().unwrap()).await.unwrap();
    let told = missing.as_ref().map(Missing::in_words).unwrap_or_default();
    assert!(told.starts_with("2.0.0 is not published for oss linux/s390x: "), "{told:?}");

    let started = Bare::never_loaded(&backend);
    let published = Published::new(directory.path().into(), started.fleet.clone(), Edition::Oss);
    let refused = published.missing(&"2.0.0".parse().unwrap()).await;
    assert!(matches!(refused, Err(PublishedError::NotLoaded)), "{refused:?}");
}

#[tokio::test]
async fn the_hosts_of_groups_are_waited_for() {
    let backend = with_a_mainframe().await;
    let started = Bare::new(&backend, "s2");
    assert!(!started.fleet.is_loaded());
    let told = started.rollouts.warn_of_empty_groups(staging()).await;
    assert_eq!(told, ["staging selects none of 1 hosts"]);
    let told = Bare::never_loaded(&backend).rollouts.warn_of_empty_groups(staging()).await;
    assert!(told.len() == 1 && told[0].contains("have not all been read yet"), "{told:?}");
}
