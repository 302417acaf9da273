//! The audit log through the API: complete, in order, and true.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{connect, settings, start};
use refit_backend::{Backend, Key, SqliteBackend};
use refit_identity::Identity;
use refit_proto::events::v1::event_service_client::EventServiceClient;
use refit_proto::events::v1::{Event, FollowEventsRequest, ListEventsRequest};
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{
    CreateResourceRequest, DeleteResourceRequest, Resource, UpdateResourceRequest, UpsertResourceRequest,
};
use refit_server::Server;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;

const WITHIN: Duration = Duration::from_secs(30);

struct Cluster {
    server: Server,
    channel: Channel,
    directory: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = start(settings(directory.path())).await.unwrap();
        let admin = Identity::read(&directory.path().join("admin/identity.json")).unwrap();
        let channel = connect(&server, Some(&admin)).await;
        Self { server, channel, directory }
    }

    fn resources(&self) -> ResourceServiceClient<Channel> {
        ResourceServiceClient::new(self.channel.clone())
    }

    fn events(&self) -> EventServiceClient<Channel> {
        EventServiceClient::new(self.channel.clone())
    }

    async fn upsert(&self, name: &str, version: &str) {
        let request = UpsertResourceRequest {
            kind: "channel".into(),
            resource: document(name, version),
            allow_major_downgrade: false,
            ..Default::default()
        };
        self.resources().upsert_resource(request).await.unwrap();
    }

    async fn list(&self, since: Option<prost_types::Timestamp>, page_size: i32) -> Vec<Event> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListEventsRequest { since, page_size, page_token };
            let page = self.events().list_events(request).await.unwrap().into_inner();
            assert!(page_size == 0 || page.events.len() <= usize::try_from(page_size).unwrap());
            all.extend(page.events);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }
}

fn document(name: &str, version: &str) -> Option<Resource> {
    let document = serde_json::json!({
        "kind": "channel", "metadata": { "name": name }, "spec": { "version": version },
    });
    Some(Resource { json: document.to_string(), ..Default::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_and_its_event_are_one_transaction() {
    let cluster = Cluster::start().await;
    let kind = || "channel".to_owned();
    let mut resources = cluster.resources();
    for name in ["created", "updated", "deleted"] {
        let request = CreateResourceRequest {
            kind: kind(),
            resource: document(name, "1.0.0"),
            allow_major_downgrade: false,
            ..Default::default()
        };
        resources.create_resource(request).await.unwrap();
    }
    let request = UpdateResourceRequest {
        kind: kind(),
        resource: document("updated", "1.0.1"),
        allow_major_downgrade: false,
        ..Default::default()
    };
    resources.update_resource(request).await.unwrap();
    let request =
        DeleteResourceRequest { kind: kind(), name: "deleted".into(), ..DeleteResourceRequest::default() };
    resources.delete_resource(request).await.unwrap();
    cluster.upsert("upserted", "1.0.0").await;
    let told = cluster.list(None, 0).await;
    let types: Vec<&str> = told.iter().map(|event| event.r#type.as_str()).collect();
    let [created, updated, deleted] = ["resource.created", "resource.updated", "resource.deleted"];
    assert_eq!(types, [created, created, created, updated, deleted, created]);
    assert!(told.iter().all(|event| event.actor == "admin"), "{told:?}");
    cluster.server.shut_down().await;

    let store = SqliteBackend::open(&cluster.directory.path().join("backend/sqlite.db")).unwrap();
    for (name, event) in [("created", &told[0]), ("updated", &told[3]), ("upserted", &told[5])] {
        let at = |key: String| Key::new(key).unwrap();
        let resource = store.get(&at(format!("/channels/v2/default/{name}"))).await.unwrap().unwrap();
        let event = store.get(&at(format!("/events/v1/default/{}", event.id))).await.unwrap().unwrap();
        assert_eq!(resource.revision, event.revision, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_once_are_told_in_their_order_and_as_they_were() {
    const COUNT: usize = 40;
    let cluster = std::sync::Arc::new(Cluster::start().await);
    let mut changing = JoinSet::new();
    for n in 0..COUNT {
        let cluster = cluster.clone();
        changing.spawn(async move { cluster.upsert("one", &format!("1.0.{n}")).await });
    }
    changing.join_all().await;

    let told = cluster.list(None, 0).await;
    assert_eq!(told.len(), COUNT);
    let versions: Vec<_> = told
        .iter()
        .map(|event| event.differences.iter().find(|one| one.path == "spec.version").unwrap())
        .collect();
    assert_eq!((told[0].r#type.as_str(), versions[0].before.as_str()), ("resource.created", ""));
    for pair in versions.windows(2) {
        assert_eq!(pair[0].after, pair[1].before, "each begins where the one before it ended");
    }
    let all: BTreeSet<&str> = versions.iter().map(|one| one.after.as_str()).collect();
    assert_eq!(all.len(), COUNT, "each is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_comes_in_pages_and_from_any_moment() {
    let cluster = Cluster::start().await;
    for n in 0..7 {
        cluster.upsert(&format!("c{n}"), "1.0.0").await;
    }
    let all = cluster.list(None, 0).await;
    assert_eq!(all.len(), 7);
    for size in [1, 3, 7, 100] {
        assert_eq!(cluster.list(None, size).await, all, "in pages of {size}");
    }
    assert_eq!(cluster.list(all[3].at, 2).await, all[3..], "the moment itself is included");
    let next = all[3].at.map(|at| prost_types::Timestamp { nanos: at.nanos + 1000, ..at });
    assert_eq!(cluster.list(next, 2).await, all[4..]);

    let odd = ListEventsRequest { page_token: "!".into(), ..ListEventsRequest::default() };
    let bad_size = ListEventsRequest { page_size: -1, ..ListEventsRequest::default() };
    let beyond = prost_types::Timestamp { seconds: i64::MAX, nanos: 0 };
    let bad_since = ListEventsRequest { since: Some(beyond), ..ListEventsRequest::default() };
    for request in [odd, bad_size, bad_since] {
        let refused = cluster.events().list_events(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_what_is_there_and_what_comes_until_the_server_stops() {
    let cluster = Cluster::start().await;
    cluster.upsert("before", "1.0.0").await;
    cluster.upsert("there", "1.0.0").await;
    let since = cluster.list(None, 0).await[1].at;
    let mut stream =
        cluster.events().follow_events(FollowEventsRequest { since }).await.unwrap().into_inner();
    let mut next = async || tokio::time::timeout(WITHIN, stream.message()).await.expect("an event in time");
    assert_eq!(next().await.unwrap().unwrap().subject, "channel/there");
    for n in 0..20 {
        cluster.upsert(&format!("c{n}"), "1.0.0").await;
        assert_eq!(next().await.unwrap().unwrap().subject, format!("channel/c{n}"));
    }
    let stopping = tokio::spawn(cluster.server.shut_down());
    let ended = next().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    tokio::time::timeout(WITHIN, stopping).await.expect("a server that is not held back").unwrap();
}
