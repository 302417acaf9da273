//! Who may do what, asked of every method and every path there is.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;

#[path = "access/port.rs"]
mod port;
#[path = "access/routes.rs"]
mod routes;
#[path = "access/strangers.rs"]
mod strangers;

use std::collections::BTreeSet;
use std::str::FromStr;

use bytes::{BufMut, Bytes, BytesMut};
use cluster::{HOUR, authority_in, call, connect, empty_store, host, open, settings, start, user};
use jiff::Timestamp;
use prost::Message;
use prost_types::FileDescriptorSet;
use refit_authority::Authority;
use refit_identity::Role;
use refit_server::{ROWS, Server, Settings};
use refit_types::Kind;
use tempfile::TempDir;
use tonic::Code;

const EVERYONE: &[&str] = &["admin", "rollout-editor", "version-editor", "viewer"];

/// The one method for which a token is proof enough.
const JOIN: &str = "/refit.agent.v1.JoinService/Join";

/// Its answer does not end.
const FOLLOW: &str = "/refit.events.v1.EventService/FollowEvents";

/// The rules once more, in words of their own: whoever changes them changes them twice.
const MAY: &[(&str, &str, &[&str])] = &[
    (JOIN, "", &["admin", "rollout-editor", "version-editor", "viewer", "host"]),
    ("/refit.agent.v1.AgentService/Renew", "", &["host"]),
    ("/refit.agent.v1.AgentService/GetAuthorities", "", &["host"]),
    ("/refit.agent.v1.AgentService/Heartbeat", "", &["host"]),
    ("/refit.nodes.v1.NodeService/CreateToken", "", &["admin"]),
    ("/refit.nodes.v1.NodeService/ListTokens", "", &["admin"]),
    ("/refit.nodes.v1.NodeService/DeleteToken", "", &["admin"]),
    ("/refit.nodes.v1.NodeService/ListNodes", "", EVERYONE),
    ("/refit.nodes.v1.NodeService/DeleteNode", "", &["admin"]),
    ("/refit.rotation.v1.RotationService/GetRotation", "", EVERYONE),
    ("/refit.rotation.v1.RotationService/SetPhase", "", &["admin"]),
    ("/refit.rotation.v1.RotationService/StartAutomatic", "", &["admin"]),
    ("/refit.rollouts.v1.RolloutService/GetRollout", "", EVERYONE),
    ("/refit.rollouts.v1.RolloutService/ListGroupHosts", "", EVERYONE),
    ("/refit.rollouts.v1.RolloutService/RunGroup", "", &["admin", "rollout-editor"]),
    ("/refit.rollouts.v1.RolloutService/Pause", "", &["admin", "rollout-editor"]),
    ("/refit.rollouts.v1.RolloutService/Resume", "", &["admin", "rollout-editor"]),
    ("/refit.rollouts.v1.RolloutService/MarkDone", "", &["admin", "rollout-editor"]),
    ("/refit.events.v1.EventService/ListEvents", "", EVERYONE),
    (FOLLOW, "", EVERYONE),
    ("/refit.cluster.v1.ClusterService/GetStatus", "", EVERYONE),
    ("/refit.auth.v1.AuthService/SignUser", "", &["admin"]),
    ("/refit.auth.v1.AuthService/CreateWebLogin", "", EVERYONE),
    ("/refit.migrations.v1.MigrationService/ListMigrations", "", EVERYONE),
    ("/refit.migrations.v1.MigrationService/ApplyMigrations", "", &["admin"]),
    ("/refit.resources.v1.ResourceService/GetResource", "channel", EVERYONE),
    ("/refit.resources.v1.ResourceService/ListResources", "channel", EVERYONE),
    ("/refit.resources.v1.ResourceService/CreateResource", "channel", &["admin", "version-editor"]),
    ("/refit.resources.v1.ResourceService/UpdateResource", "channel", &["admin", "version-editor"]),
    ("/refit.resources.v1.ResourceService/UpsertResource", "channel", &["admin", "version-editor"]),
    ("/refit.resources.v1.ResourceService/DeleteResource", "channel", &["admin", "version-editor"]),
    ("/refit.resources.v1.ResourceService/GetResource", "cluster_maintenance_config", EVERYONE),
    ("/refit.resources.v1.ResourceService/ListResources", "cluster_maintenance_config", EVERYONE),
    (
        "/refit.resources.v1.ResourceService/CreateResource",
        "cluster_maintenance_config",
        &["admin", "rollout-editor"],
    ),
    (
        "/refit.resources.v1.ResourceService/UpdateResource",
        "cluster_maintenance_config",
        &["admin", "rollout-editor"],
    ),
    (
        "/refit.resources.v1.ResourceService/UpsertResource",
        "cluster_maintenance_config",
        &["admin", "rollout-editor"],
    ),
    (
        "/refit.resources.v1.ResourceService/DeleteResource",
        "cluster_maintenance_config",
        &["admin", "rollout-editor"],
    ),
    ("/refit.resources.v1.ResourceService/GetResource", "autoupdate_version", EVERYONE),
    ("/refit.resources.v1.ResourceService/ListResources", "autoupdate_version", EVERYONE),
    (
        "/refit.resources.v1.ResourceService/CreateResource",
        "autoupdate_version",
        &["admin", "version-editor"],
    ),
    (
        "/refit.resources.v1.ResourceService/UpdateResource",
        "autoupdate_version",
        &["admin", "version-editor"],
    ),
    (
        "/refit.resources.v1.ResourceService/UpsertResource",
        "autoupdate_version",
        &["admin", "version-editor"],
    ),
    (
        "/refit.resources.v1.ResourceService/DeleteResource",
        "autoupdate_version",
        &["admin", "version-editor"],
    ),
];

/// A method, and the kind of resource that it is to work on.
type Call = (String, Option<Kind>);

/// Every method of the `.proto` files, with every kind if it takes one.
fn every_call() -> BTreeSet<Call> {
    let files = FileDescriptorSet::decode(refit_proto::DESCRIPTORS).unwrap().file;
    let mut calls = BTreeSet::new();
    for file in files.iter().filter(|file| file.package().starts_with("refit.")) {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                match service.name() {
                    "ResourceService" => calls.extend(Kind::ALL.map(|kind| (path.clone(), Some(kind)))),
                    _ => drop(calls.insert((path, None))),
                }
            }
        }
    }
    calls
}

/// Empty but for the kind, which is the first field of all that take one.
fn request(kind: Option<Kind>) -> Bytes {
    let mut bytes = BytesMut::new();
    if let Some(kind) = kind {
        let name = kind.name().as_bytes();
        bytes.put_u8(1 << 3 | 2);
        bytes.put_u8(name.len().try_into().unwrap());
        bytes.put_slice(name);
    }
    bytes.freeze()
}

/// A server, and the key with which its cluster signs.
struct Cluster {
    server: Server,
    authority: Authority,
    store: String,
    directory: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        Self::start_with(|settings| settings).await
    }

    async fn start_with(changed: impl FnOnce(Settings) -> Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = empty_store().await;
        let named = Some("walked".into());
        let settings =
            Settings { backend: Some(store.clone()), cluster_name: named, ..settings(directory.path()) };
        let server = start(changed(settings)).await.unwrap();
        Self { server, authority: authority_in(&store).await, store, directory }
    }
}

#[test]
fn the_table_has_every_method_and_no_other() {
    let rows: Vec<Call> = ROWS.iter().map(|row| (row.method.to_owned(), row.kind)).collect();
    let distinct: BTreeSet<Call> = rows.iter().cloned().collect();
    assert_eq!(rows.len(), distinct.len(), "a row stands twice");
    assert_eq!(distinct, every_call());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_may_do_what_it_should_and_nothing_else() {
    let listed: BTreeSet<Call> =
        MAY.iter().map(|(method, kind, _)| ((*method).to_owned(), Kind::from_str(kind).ok())).collect();
    assert_eq!(listed, every_call(), "this test says for each method who may call it");

    let cluster = Cluster::start().await;
    let mut wrong = Vec::new();
    let now = Timestamp::now();
    let users = Role::ALL.map(|role| (role.as_str(), user(&cluster.authority, role, HOUR, now)));
    for (role, identity) in users.into_iter().chain([("host", host(&cluster.authority, now))]) {
        let channel = connect(&cluster.server, Some(&identity)).await;
        for (method, kind, roles) in MAY {
            let request = request(Kind::from_str(kind).ok());
            let answer = match *method {
                FOLLOW => open(&channel, method, request).await,
                _ => call(&channel, method, request).await.map(drop),
            };
            let code = answer.err().map_or(Code::Ok, |status| status.code());
            let expected = roles.contains(&role);
            let allowed = match code {
                Code::PermissionDenied => false,
                // The last: migrations run already, as the server has just started.
                Code::Ok | Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition => true,
                _ => !expected,
            };
            if allowed != expected {
                wrong.push(format!("{role}: {method} {kind}: {code:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_add_up_and_a_refusal_says_whom_to_ask() {
    let cluster = Cluster::start().await;
    let delete = "/refit.resources.v1.ResourceService/DeleteResource";
    let mut outcomes = Vec::new();
    for roles in ["viewer,rollout-editor", "viewer,version-editor"] {
        let roles: refit_identity::Roles = roles.parse().unwrap();
        let identity = user(&cluster.authority, roles, HOUR, Timestamp::now());
        let channel = connect(&cluster.server, Some(&identity)).await;
        outcomes.push(call(&channel, delete, request(Some(Kind::Channel))).await.unwrap_err());
    }
    assert_eq!(
        outcomes[0].message(),
        "\"alice\" with the roles rollout-editor,viewer may not delete resource on a channel; \
         ask an administrator of the cluster"
    );
    assert_eq!(outcomes[1].code(), Code::InvalidArgument, "{}", outcomes[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_change_the_rollout_may_not_choose_the_version() {
    let cluster = Cluster::start().await;
    let upsert = "/refit.resources.v1.ResourceService/UpsertResource";
    let get = "/refit.resources.v1.ResourceService/GetResource";
    for (role, mine, other) in [
        (Role::RolloutEditor, Kind::ClusterMaintenanceConfig, Kind::AutoupdateVersion),
        (Role::VersionEditor, Kind::AutoupdateVersion, Kind::ClusterMaintenanceConfig),
    ] {
        let identity = user(&cluster.authority, role, HOUR, Timestamp::now());
        let channel = connect(&cluster.server, Some(&identity)).await;
        let ask = |kind: Kind| {
            let spec = match kind {
                Kind::AutoupdateVersion => r#"{"agent_version":"15.1.1"}"#,
                _ => "{}",
            };
            let json = format!(r#"{{"kind":"{kind}","spec":{spec}}}"#);
            let resource = Some(refit_proto::resources::v1::Resource { json, ..Default::default() });
            let request = refit_proto::resources::v1::UpsertResourceRequest {
                kind: kind.to_string(),
                resource,
                allow_missing: true,
                ..Default::default()
            };
            request.encode_to_vec().into()
        };
        call(&channel, upsert, ask(mine)).await.unwrap();
        let refused = call(&channel, upsert, ask(other)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        let word = format!("may not upsert resource on a {other}; ask an administrator");
        assert!(refused.message().contains(&word), "{refused}");
        call(&channel, get, request(Some(mine))).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_documents_are_refused_quickly() {
    let cluster = Cluster::start().await;
    let identity = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    let channel = connect(&cluster.server, Some(&identity)).await;
    let kind = Kind::ClusterMaintenanceConfig.to_string();
    let filler = format!(r#"{{"kind":"{kind}","spec":[{}0]}}"#, "0,".repeat(5 << 20));
    let faulty = format!(r#"{{"kind":"{kind}","spec":{{{}"x":0}}}}"#, r#""y":0,"#.repeat(100));
    let days = format!(r#"{{"agent_auto_update":{{"regular":{{"days":[{}0]}}}}}}"#, "0,".repeat(400_000));
    for (json, code, word) in [
        (filler, Code::OutOfRange, "too large"),
        ("[".repeat(500_000), Code::InvalidArgument, "the document is not JSON: recursion limit exceeded"),
        (faulty, Code::InvalidArgument, "spec.x: is not a known field"),
        (format!(r#"{{"kind":"{kind}","spec":{days}}}"#), Code::InvalidArgument, "… and 399901 more"),
    ] {
        let resource = Some(refit_proto::resources::v1::Resource { json, ..Default::default() });
        let request = refit_proto::resources::v1::CreateResourceRequest {
            kind: kind.clone(),
            resource,
            allow_major_downgrade: false,
            ..Default::default()
        };
        let create = "/refit.resources.v1.ResourceService/CreateResource";
        let began = std::time::Instant::now();
        let refused = call(&channel, create, request.encode_to_vec().into()).await.unwrap_err();
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}: {refused}", began.elapsed());
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(word), "{refused}");
    }
}
