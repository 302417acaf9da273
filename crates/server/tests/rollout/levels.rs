//! Servers of two feature levels side by side: a gate that one of them does not know is not used while it lives, and
//! one that comes later keeps out of it.

use jiff::Timestamp;
use refit_identity::Role;
use refit_server::{Features, Release, Server, Settings};
use refit_testbed::{eventually, until_seen};
use refit_types::{FeatureLevel, Resource, RolloutRecord};
use serde_json::json;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::cluster::{HOUR, authority_in, connect, empty_store, release, start_release, user};
use crate::pause::{choose_immediate, told_by};
use crate::world::{FAR, NEW, SOON, World, get_plain, group, key, open_settings, regular, rollout, set};

/// One more than that of this release.
const NEWER: u32 = 3;

/// A made-up newer release, in which a group of that name is a gate.
fn newer() -> Release {
    let needed = |resource: &Resource| match resource {
        Resource::ClusterMaintenanceConfig(config) => {
            let groups = &config.agent_auto_update_groups.regular;
            FeatureLevel::new(if groups.iter().any(|group| group.name.as_str() == "gated") {
                NEWER
            } else {
                0
            })
        }
        _ => FeatureLevel::NONE,
    };
    let features = Features { level: FeatureLevel::new(NEWER), needed, ..Features::current() };
    Release { features, ..release() }
}

/// The release before this one, which told hosts of immediate versions, paused or not.
fn older() -> Release {
    let features = Features {
        level: FeatureLevel::new(1),
        needed: |_| FeatureLevel::NONE,
        needed_while_paused: |_| FeatureLevel::NONE,
    };
    Release { features, ..release() }
}

struct Member {
    server: Server,
    admin: Channel,
    _directory: TempDir,
}

impl Member {
    async fn start(store: &str, release: Release) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { backend: Some(store.into()), ..open_settings(directory.path()) };
        let server = start_release(settings, release).await.unwrap();
        let admin = user(&authority_in(store).await, Role::Admin, HOUR, Timestamp::now());
        let admin = connect(&server, Some(&admin)).await;
        Self { server, admin, _directory: directory }
    }

    async fn ready(&self) -> String {
        get_plain(&self.server.diag_address.to_string(), "/readyz").await
    }
}

async fn plan(world: &World) -> RolloutRecord {
    let item = refit_backend::Backend::get(&world.backend, &key("/rollouts/v1/default/plan")).await.unwrap();
    serde_json::from_slice(&item.unwrap().value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_a_live_server_does_not_know_is_not_used() {
    let store = empty_store().await;
    // One server of this release from the start, which knows nothing of the gate.
    let mut world = World::at(&store, &store, 1).await;
    refit_backend::Backend::delete(&world.backend, &key(&format!("/servers/v1/default/{FAR}")))
        .await
        .unwrap();
    let new = Member::start(&store, newer()).await;
    let (plain, gated) = (
        regular(&[group("canary", "staging", true, json!({}))]),
        regular(&[group("gated", "staging", true, json!({}))]),
    );
    set(&new.admin, "cluster_maintenance_config", plain).await.unwrap();
    set(&new.admin, "autoupdate_version", json!({ "agent_version": NEW })).await.unwrap();
    let epoch = plan(&world).await.epoch;
    let refused = set(&new.admin, "cluster_maintenance_config", gated.clone()).await.unwrap_err();
    let words = refused.message();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(words.contains("feature level 3") && words.contains("has level 2"), "{words}");
    assert_eq!(
        (plan(&world).await.epoch, plan(&world).await.level),
        (epoch, FeatureLevel::NONE),
        "nothing changed"
    );
    assert!(world.servers.len() == 1 && rollout(&world.admin).await.stopped.is_empty());

    // That server goes, and the gate may be used.
    let old = world.servers.remove(0);
    old.shut_down().await;
    let taken = async || set(&new.admin, "cluster_maintenance_config", gated.clone()).await.is_ok();
    eventually("the gate is taken", SOON, taken).await;
    assert_eq!(plan(&world).await.level, FeatureLevel::new(NEWER));
    assert!(new.ready().await.contains("200 OK"));

    // One that does not know it comes back: it decides nothing, tells nobody, and is not ready.
    let old = Member::start(&store, release()).await;
    let ready = until_seen("it is not ready", SOON, || old.ready(), |ready| ready.contains("503")).await;
    assert!(ready.contains("feature level 3") && ready.contains("upgrade it"), "{ready}");
    let status = rollout(&old.admin).await;
    assert!(status.stopped.contains("feature level 3") && status.groups.is_empty(), "{status:?}");
    assert!(rollout(&new.admin).await.stopped.is_empty());

    // The gate is given up, and both take part again.
    let plain = regular(&[group("canary", "staging", true, json!({}))]);
    set(&new.admin, "cluster_maintenance_config", plain).await.unwrap();
    eventually("the level is none", SOON, async || plan(&world).await.level.is_none()).await;
    until_seen("it is ready", SOON, || old.ready(), |ready| ready.contains("200 OK")).await;
    assert!(rollout(&old.admin).await.stopped.is_empty());
    old.server.shut_down().await;
    new.server.shut_down().await;
}

#[track_caller]
fn names_the_older_server<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    let refused = answer.unwrap_err();
    let words = refused.message().to_owned();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(words.contains("needs feature level 2") && words.contains("has level 1"), "{words}");
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn no_older_server_tells_hosts_of_a_paused_immediate_version() {
    let world = World::start(1).await;
    world.add(1..2, "nowhere").await;
    world.choose(NEW, "regular").await;
    let old = Member::start(&world.store, older()).await;
    // A pause of a version with windows is known to both.
    world.pause("").await.unwrap();
    names_the_older_server(choose_immediate(&world.admin, "15.9.0", true).await);
    assert_eq!(world.rollout().await.version, NEW, "it was not stored");
    world.resume("").await.unwrap();
    choose_immediate(&world.admin, "15.9.0", false).await.unwrap();
    let words = names_the_older_server(world.pause("").await);
    assert!(words.contains("--set-agent-auto-update=off"), "{words}");
    let stored = plan(&world).await;
    assert!(stored.paused.is_none() && stored.level.is_none(), "{stored:?}");

    old.server.shut_down().await;
    eventually("it is paused", SOON, async || world.pause("").await.is_ok()).await;
    let stored = plan(&world).await;
    assert_eq!((stored.paused.is_some(), stored.level), (true, FeatureLevel::new(2)));
    choose_immediate(&world.admin, "15.9.1", true).await.unwrap();
    assert_eq!(plan(&world).await.level, FeatureLevel::new(2), "in the next epoch, too");

    // One that starts later and does not know of it decides nothing, and the pause can be repeated.
    let old = Member::start(&world.store, older()).await;
    until_seen("it is not ready", SOON, || old.ready(), |ready| ready.contains("503")).await;
    assert_eq!(told_by(&old.server).await, [false; 3]);
    world.pause("").await.unwrap();
    world.resume("").await.unwrap();
    assert!(plan(&world).await.level.is_none());
    until_seen("it is ready", SOON, || old.ready(), |ready| ready.contains("200 OK")).await;
    eventually("both tell", SOON, async || {
        told_by(&old.server).await == [true; 3] && told_by(&world.servers[0]).await == [true; 3]
    })
    .await;
    old.server.shut_down().await;
    world.shut_down().await;
}
