//! Heartbeats: what is accepted, and what ends the stream with which status.

use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use jiff::Timestamp;
use refit_authority::MIN_TTL;
use refit_identity::{Identity, Role};
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::{HeartbeatReply, HeartbeatRequest};
use refit_proto::nodes::v1::DeleteNodeRequest;
use refit_types::AgentRole;
use tonic::{Code, Status, Streaming};

use crate::cluster::{HOUR, connect, user};
use crate::{Cluster, new_host};

/// Longer than anything here takes, and shorter than the silence after which a server gives up.
const SOON: Duration = Duration::from_secs(40);
/// How far a certificate is from its end when its stream begins.
const LEFT: Duration = Duration::from_secs(6);
/// As much as an agent reads of its updater's status.
const LONGEST_STATUS: usize = 64 * 1024;

fn good() -> HeartbeatRequest {
    HeartbeatRequest {
        hostname: "web".into(),
        version: "1.2.3".into(),
        edition: "oss".into(),
        roles: vec!["node".into()],
        upgrader: "none".into(),
        session: "624b05e0-c442-4adb-b96f-000c8f899101".into(),
        started_at: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
        ..HeartbeatRequest::default()
    }
}

struct Stream {
    outbox: UnboundedSender<HeartbeatRequest>,
    replies: Streaming<HeartbeatReply>,
}

impl Stream {
    async fn open(cluster: &Cluster, by: &Identity) -> Result<Self, Status> {
        let mut client = AgentServiceClient::new(connect(&cluster.server, Some(by)).await);
        let (outbox, inbox) = unbounded();
        let replies = client.heartbeat(inbox).await?.into_inner();
        Ok(Self { outbox, replies })
    }

    async fn next(&mut self) -> Result<Option<HeartbeatReply>, Status> {
        tokio::time::timeout(SOON, self.replies.message()).await.expect("an answer in time")
    }

    async fn beat(&mut self, request: HeartbeatRequest) -> Result<Option<HeartbeatReply>, Status> {
        self.outbox.unbounded_send(request).unwrap();
        self.next().await
    }
}

/// Sends one good heartbeat.
pub async fn report(cluster: &Cluster, by: &Identity) {
    let mut stream = Stream::open(cluster, by).await.unwrap();
    assert!(stream.beat(good()).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_heartbeats_are_named_and_end_the_stream() {
    let cluster = Cluster::start().await;
    let identity = cluster.joined(new_host()).await;
    let bad_label = [("no good name".to_owned(), "x".to_owned())];
    let cases: [(&str, HeartbeatRequest); 9] = [
        ("version", HeartbeatRequest { version: "fifteen".into(), ..good() }),
        ("edition", HeartbeatRequest { edition: "gold".into(), ..good() }),
        ("upgrader", HeartbeatRequest { upgrader: "magic".into(), ..good() }),
        ("hostname", HeartbeatRequest { hostname: "a\nb".into(), ..good() }),
        ("started_at", HeartbeatRequest { started_at: None, ..good() }),
        ("session", HeartbeatRequest { session: "s".repeat(65), ..good() }),
        ("node_labels", HeartbeatRequest { node_labels: bad_label.clone().into(), ..good() }),
        ("instance_labels", HeartbeatRequest { instance_labels: bad_label.into(), ..good() }),
        ("updater_status", HeartbeatRequest { updater_status: " ".repeat(LONGEST_STATUS + 1), ..good() }),
    ];
    for (field, request) in cases {
        let mut stream = Stream::open(&cluster, &identity).await.unwrap();
        assert!(stream.beat(good()).await.unwrap().is_some());
        let refused = stream.beat(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{field}: {refused}");
        assert!(refused.message().contains(field), "{field}: {refused}");
        assert_eq!(stream.next().await.unwrap(), None, "{field}: the stream goes on");
    }
    // What was good before stays.
    assert_eq!(cluster.fleet().await[0].version, "1.2.3");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_updater_writes_its_host_is_not_lost() {
    let cluster = Cluster::start().await;
    let identity = cluster.joined(new_host()).await;
    let mut stream = Stream::open(&cluster, &identity).await.unwrap();
    let padded = |text: &str| format!("{text}{}", " ".repeat(LONGEST_STATUS - text.len()));
    let known = padded(r#"{"agent_updates_enabled":true,"held":"the disk is full","of_the_future":[1]}"#);
    for (status, held) in [(known, true), (padded("no JSON"), false), (String::new(), false)] {
        assert!(stream.beat(HeartbeatRequest { updater_status: status, ..good() }).await.unwrap().is_some());
        let shown = &cluster.fleet().await[0].updater_status;
        assert_eq!(shown.contains("the disk is full"), held, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_removed_hosts_have_no_heartbeat() {
    let cluster = Cluster::start().await;
    let admin = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    let refused = Stream::open(&cluster, &admin).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");

    let id = new_host();
    let mut stream = Stream::open(&cluster, &cluster.joined(id).await).await.unwrap();
    assert!(stream.beat(good()).await.unwrap().is_some());
    cluster.admin().await.delete_node(DeleteNodeRequest { host_id: id.to_string() }).await.unwrap();
    let refused = stream.beat(good()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    assert!(refused.message().contains("was removed from the cluster"), "{refused}");
    assert!(cluster.fleet().await.is_empty(), "a heartbeat brought it back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_certificate_though_nobody_says_a_word() {
    let cluster = Cluster::start().await;
    let id = new_host();
    cluster.joined(id).await;
    let short = cluster.signed(id, AgentRole::Node, MIN_TTL, Timestamp::now() - (MIN_TTL - LEFT));
    let mut stream = Stream::open(&cluster, &short).await.unwrap();
    assert!(stream.beat(good()).await.unwrap().is_some());
    let ended = stream.next().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("expired") && Timestamp::now() >= short.expires(), "{ended}");
    assert_eq!(stream.next().await.unwrap(), None);
}
