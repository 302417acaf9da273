//! A pause of the rollout: no host is told to start, in any schedule, whether it has a group or is known at all.

use http::Request;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{Resource, UpsertResourceRequest};
use refit_server::Server;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::ServiceExt;

use crate::cluster::connect;
use crate::world::{NEW, World, group, host, regular, window};

/// The hours of hosts without a group: always open.
fn always() -> Value {
    json!({ "agent_auto_update": { "regular": window(true), "critical": window(true) } })
}

/// Chooses an immediate version.
pub async fn choose_immediate(admin: &Channel, version: &str, even_if_paused: bool) -> Result<(), Status> {
    let spec = json!({ "agent_version": version, "agent_version_schedule": "immediate" });
    let document = json!({ "kind": "autoupdate_version", "spec": spec });
    let request = UpsertResourceRequest {
        kind: "autoupdate_version".into(),
        resource: Some(Resource { json: document.to_string(), ..Default::default() }),
        allow_missing: true,
        even_if_paused,
        ..Default::default()
    };
    ResourceServiceClient::new(admin.clone()).upsert_resource(request).await.map(drop)
}

/// What `find` says to a host of no group, to one that is not known, and to one that names no UUID.
async fn told(world: &World) -> Vec<bool> {
    told_by(&world.servers[0]).await
}

/// The same of one server.
pub async fn told_by(server: &Server) -> Vec<bool> {
    let mut told = Vec::new();
    for query in [format!("?host={}", host(1)), format!("?host={}", host(99)), String::new()] {
        let channel = connect(server, None).await;
        let uri = format!("https://refit/v1/webapi/find{query}");
        let request = Request::get(uri).body(tonic::body::Body::empty()).unwrap();
        let response = channel.oneshot(request).await.unwrap();
        let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 16).await.unwrap();
        let found: Value = serde_json::from_slice(&body).unwrap();
        told.push(found["agent_auto_update"].as_bool().unwrap());
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_is_told_while_the_rollout_is_paused() {
    let world = World::start(1).await;
    world.add(1..3, "nowhere").await;
    world.configure(always()).await;
    world.choose(NEW, "regular").await;
    assert_eq!(told(&world).await, [true; 3], "the hours of hosts without a group");
    world.pause("").await.unwrap();
    assert_eq!(told(&world).await, [false; 3], "a pause is for hosts without a group, too");

    let refused = choose_immediate(&world.admin, "15.9.0", false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for expected in ["paused since", "refitctl autoupdate resume", "--even-if-paused"] {
        assert!(refused.message().contains(expected), "{refused}");
    }
    assert_eq!(world.rollout().await.version, NEW, "it was not stored");

    choose_immediate(&world.admin, "15.9.0", true).await.unwrap();
    let rollout = world.rollout().await;
    assert_eq!((rollout.version.as_str(), rollout.schedule.as_str()), ("15.9.0", "immediate"));
    assert_eq!(told(&world).await, [false; 3], "nobody is told before it is resumed");
    choose_immediate(&world.admin, "15.9.0", false).await.unwrap();
    world.resume("").await.unwrap();
    assert_eq!(told(&world).await, [true; 3]);
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_with_groups_may_be_chosen_while_paused() {
    let world = World::start(1).await;
    world.add(1..3, "staging").await;
    world.configure(regular(&[group("canary", "staging", true, json!({}))])).await;
    world.choose(NEW, "regular").await;
    world.pause("").await.unwrap();
    world.choose("15.9.0", "regular").await;
    assert_eq!(world.rollout().await.version, "15.9.0");
    world.shut_down().await;
}
