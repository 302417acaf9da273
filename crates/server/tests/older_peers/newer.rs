//! Peers of versions to come: values that this server does not know, and texts that are no longer sent.

use futures::channel::mpsc::unbounded;
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::{HeartbeatRequest, Rotation};
use refit_proto::nodes::v1::{ListNodesRequest, Node};
use refit_proto::rollouts::v1 as wire;
use refit_proto::rotation::v1::SetPhaseRequest;
use refit_proto::rotation::v1::rotation_service_client::RotationServiceClient;
use refit_proto::v1::{AgentRole, Edition, RotationPhase, Upgrader};
use serde_json::json;
use tonic::{Code, Status};

use crate::cluster::connect;
use crate::world::{NEW, World, group, regular};

/// A number that no enum has yet.
const LATER: i32 = 77;

/// Sends one heartbeat as a host that has just joined; what is then known of it.
async fn report(world: &World, beat: HeartbeatRequest) -> Result<Node, Status> {
    let joined = world.joined(1).await.remove(0);
    let channel = connect(&world.servers[0], Some(&joined.identity)).await;
    let (outbox, inbox) = unbounded();
    outbox.unbounded_send(beat).unwrap();
    let mut replies = AgentServiceClient::new(channel).heartbeat(inbox).await?.into_inner();
    replies.message().await?.unwrap();
    let all = ListNodesRequest { page_size: 1000, ..Default::default() };
    let nodes = world.nodes().list_nodes(all).await?.into_inner().nodes;
    Ok(nodes.into_iter().find(|node| node.host_id == joined.host.to_string()).unwrap())
}

fn without_texts() -> HeartbeatRequest {
    HeartbeatRequest {
        hostname: "new".into(),
        version: "1.2.3".into(),
        edition_code: Edition::EnterpriseFips.into(),
        role_codes: vec![AgentRole::Node.into()],
        upgrader_code: Upgrader::Unit.into(),
        session: "624b05e0-c442-4adb-b96f-000c8f899101".into(),
        started_at: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
        rotation: Some(Rotation { phase_code: RotationPhase::Init.into(), ..Default::default() }),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_are_read_by_their_enums_and_else_by_their_texts() {
    let world = World::start(1).await;
    let node = report(&world, without_texts()).await.unwrap();
    assert_eq!((node.edition.as_str(), node.upgrader.as_str()), ("enterprise-fips", "unit"));
    assert_eq!((node.edition_code(), node.upgrader_code()), (Edition::EnterpriseFips, Upgrader::Unit));
    assert_eq!((node.rotation_phase.as_str(), node.rotation_phase_code()), ("init", RotationPhase::Init));

    let later = HeartbeatRequest {
        edition_code: LATER,
        edition: "oss".into(),
        upgrader_code: LATER,
        upgrader: "kube".into(),
        rotation: Some(Rotation { id: "r".into(), phase: "revoke".into(), phase_code: LATER }),
        ..without_texts()
    };
    let node = report(&world, later).await.unwrap();
    assert_eq!((node.edition.as_str(), node.upgrader.as_str()), ("oss", "kube"));
    assert_eq!((node.rotation_phase.as_str(), node.rotation_phase_code), ("revoke", 0), "shown as it is");

    let neither = HeartbeatRequest { edition_code: LATER, ..without_texts() };
    let refused = report(&world, neither).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().starts_with("edition") && refused.message().contains("77"), "{refused}");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_read_by_their_enums_and_refused_when_nobody_knows_what_they_mean() {
    let world = World::start(1).await;
    world.add(1..4, "staging").await;
    world.configure(regular(&[group("canary", "staging", true, json!({}))])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 3).await;
    let count = async |outcome_code: i32, outcome: &str| -> Result<usize, Status> {
        let group = "canary".to_owned();
        let outcome = outcome.to_owned();
        let request = wire::ListGroupHostsRequest { group, outcome, outcome_code, ..Default::default() };
        Ok(world.rollouts().list_group_hosts(request).await?.into_inner().hosts.len())
    };
    assert_eq!(count(wire::HostOutcome::InFlight.into(), "").await.unwrap(), 3);
    assert_eq!(count(wire::HostOutcome::Failed.into(), "").await.unwrap(), 0);
    assert_eq!(count(wire::HostOutcome::Failed.into(), "in_flight").await.unwrap(), 0, "the enum counts");
    assert_eq!(count(LATER, "in_flight").await.unwrap(), 3);
    assert_eq!(count(0, "").await.unwrap(), 3, "all of them");
    let refused = count(LATER, "").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "not all of them: {refused}");

    let mut rotation = RotationServiceClient::new(world.admin.clone());
    let later = SetPhaseRequest { phase_code: LATER, ..Default::default() };
    let refused = rotation.set_phase(later).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let init = SetPhaseRequest { phase_code: RotationPhase::Init.into(), ..Default::default() };
    let moved = rotation.set_phase(SetPhaseRequest { force: true, ..init }).await.unwrap().into_inner();
    assert_eq!((moved.phase.as_str(), moved.phase_code()), ("init", RotationPhase::Init));
    world.shut_down().await;
}
