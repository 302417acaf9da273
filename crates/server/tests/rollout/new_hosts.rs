//! What `find` names to hosts that are not known while a rollout is stopped.

use http::Request;
use refit_proto::rollouts::v1::MarkDoneRequest;
use refit_server::Server;
use refit_testbed::eventually;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::cluster::connect;
use crate::world::{NEW, SOON, World, group, host, key, regular};

const GOOD: &str = "15.0.9";

/// What a server's `find` says to a host, or to one that shows no UUID.
async fn found_at(server: &Server, host: Option<u128>) -> Value {
    let query = host.map(|n| format!("?host={}", crate::world::host(n))).unwrap_or_default();
    let channel = connect(server, None).await;
    let uri = format!("https://refit/v1/webapi/find{query}");
    let request = Request::get(uri).body(tonic::body::Body::empty()).unwrap();
    let response = channel.oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 16).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

async fn found(world: &World, host: Option<u128>) -> Value {
    found_at(&world.servers[0], host).await
}

async fn last_good(world: &World) -> Value {
    let stored =
        refit_backend::Backend::get(&world.backend, &key("/rollouts/v1/default/plan")).await.unwrap();
    serde_json::from_slice::<Value>(&stored.unwrap().value).unwrap()["last_good"].clone()
}

/// Waits until every server names that version to new hosts, with that word.
async fn until_named(world: &World, version: &str, auto_update: bool, withheld: Value) {
    for server in &world.servers {
        let is_named = || async {
            let told = found_at(server, None).await;
            told["agent_version"] == version
                && told["agent_auto_update"] == auto_update
                && told["agent_version_withheld"] == withheld
                && told["auto_update"]["agent_version"] == version
        };
        eventually("new hosts are told so", SOON, is_named).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_host_gets_the_last_version_that_ended_well_while_the_rollout_is_stopped() {
    let mut world = World::start(2).await;
    let strict = json!({ "max_failed_before_halt": "0%" });
    let groups = [group("canary", "staging", true, strict), group("later", "development", true, json!({}))];
    world.configure(regular(&groups)).await;
    world.add(1..4, "staging").await;

    // Nothing has ended well: there is no version for a new host, and it can see that.
    world.choose(GOOD, "regular").await;
    world.until("canary", |group| group.in_flight == 3).await;
    assert!(found(&world, None).await["agent_version_withheld"].is_null());
    world.pause("").await.unwrap();
    until_named(&world, GOOD, false, json!("paused")).await;
    assert!(found(&world, Some(1)).await["agent_version_withheld"].is_null(), "a host that is known");
    world.resume("").await.unwrap();
    for n in 1..4 {
        world.arrives(host(n), GOOD).await;
    }
    world.until("canary", |group| group.state == "succeeded").await;
    assert!(last_good(&world).await.is_null(), "one group is left");

    // It ends with what an operator marks, and the next epoch begins before any server has looked at that.
    let later = MarkDoneRequest { group: "later".into() };
    world.until("later", |group| !group.waiting.is_empty()).await;
    world.rollouts().mark_done(later).await.unwrap();
    world.choose(NEW, "regular").await;
    assert_eq!(last_good(&world).await, GOOD);
    world.until("canary", |group| group.in_flight == 3).await;
    assert_eq!(found(&world, None).await["agent_version"], NEW);

    world.undoes(host(1)).await;
    world.until("canary", |group| group.state == "halted").await;
    until_named(&world, GOOD, false, Value::Null).await;
    assert_eq!(found(&world, Some(999)).await["agent_version"], GOOD, "a UUID that is not known");
    assert_eq!(found(&world, Some(2)).await["agent_version"], NEW, "a host that is known");
    let removed = refit_proto::nodes::v1::DeleteNodeRequest { host_id: host(2).to_string() };
    world.nodes().delete_node(removed).await.unwrap();
    eventually("a host that was removed is a new one", SOON, || async {
        found(&world, Some(2)).await["agent_version"] == GOOD
    })
    .await;
    // Servers that start now have it from the store.
    for server in std::mem::take(&mut world.servers) {
        server.shut_down().await;
    }
    let mut world = World::at(&world.store, &world.store, 2).await;
    until_named(&world, GOOD, false, Value::Null).await;
    eventually("hosts are known again", SOON, || async {
        found(&world, Some(3)).await["agent_version"] == NEW
    })
    .await;

    // Back to what was good: another epoch, in which nothing has ended yet.
    world.pause("").await.unwrap();
    world.choose(GOOD, "regular").await;
    until_named(&world, GOOD, false, Value::Null).await;
    assert_eq!(last_good(&world).await, GOOD);
    world.resume("").await.unwrap();

    // A version without groups has ended well once nobody who is there is behind.
    world.choose("15.3.0", "immediate").await;
    until_named(&world, "15.3.0", true, Value::Null).await;
    world.arrives(host(1), "15.3.0").await;
    eventually("one has it", SOON, || async {
        world.rollout().await.ungrouped.is_some_and(|hosts| hosts.on_version == 1)
    })
    .await;
    assert_eq!(last_good(&world).await, GOOD);
    world.arrives(host(3), "15.3.0").await;
    eventually("that is kept, too", SOON, || async { last_good(&world).await == "15.3.0" }).await;
    world.pause("").await.unwrap();
    world.choose("15.4.0", "regular").await;
    until_named(&world, "15.3.0", false, Value::Null).await;
    for server in std::mem::take(&mut world.servers) {
        server.shut_down().await;
    }
}
