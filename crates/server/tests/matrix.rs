//! Servers that know a migration beside servers that do not, on a real etcd, each reading and writing
//! through the whole API for many operations: upgraded one after the other, and downgraded again. Agents and
//! `refitctl` of older releases are in `older_peers.rs`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use refit_identity::{Identity, SERVER_NAME, client_config};
use refit_migrations::Registry;
use refit_proto::migrations::v1::ListMigrationsRequest;
use refit_proto::migrations::v1::migration_service_client::MigrationServiceClient;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{
    CreateResourceRequest, DeleteResourceRequest, GetResourceRequest, ListResourcesRequest, Resource,
    UpdateResourceRequest, UpsertResourceRequest,
};
use refit_resources::{FormatStore, any_kind, channels_v1, open_store};
use refit_server::{Release, Server, Settings};
use refit_testbed::{Etcd, directory, eventually, sweep};
use refit_types::Kind;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::Channel;

const TIMEOUT: Duration = Duration::from_secs(60);

/// This one.
fn new_release() -> Release {
    Release::current(env!("CARGO_PKG_VERSION").parse().unwrap())
}

/// The release before the migration.
fn old_release() -> Release {
    Release {
        migrations: Registry::default(),
        stores: |kind, backend| match kind {
            Kind::Channel => Ok(any_kind(FormatStore::new(backend, channels_v1()))),
            other => open_store(other, backend),
        },
        ..new_release()
    }
}

struct Member {
    server: Server,
    channel: Channel,
    _data: TempDir,
}

impl Member {
    async fn start(backend: &str, release: Release) -> Self {
        let data = directory();
        let settings = Settings {
            listen: Some("127.0.0.1:0".into()),
            diag_listen: Some("127.0.0.1:0".into()),
            backend: Some(backend.into()),
            ..Settings::default()
        };
        let server = Server::start(settings.check(data.path()).unwrap(), release).await.unwrap();
        let identity = Identity::read(&data.path().join("admin/identity.json")).unwrap();
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let address = server.local_address().to_string();
        let channel = refit_proto::dial(&address, name, client_config(&identity).unwrap()).await.unwrap();
        Self { server, channel, _data: data }
    }

    fn client(&self) -> ResourceServiceClient<Channel> {
        ResourceServiceClient::new(self.channel.clone())
    }

    async fn migrated(&self) {
        let applied = || {
            let mut client = MigrationServiceClient::new(self.channel.clone());
            async move {
                let listed = client.list_migrations(ListMigrationsRequest::default()).await.unwrap();
                listed.get_ref().migrations.iter().any(|migration| migration.number == 1 && migration.success)
            }
        };
        eventually("the migration is applied", TIMEOUT, applied).await;
    }

    async fn stop(self) {
        self.server.shut_down().await;
    }
}

type Model = BTreeMap<String, String>;

fn document(name: &str, version: &str) -> Option<Resource> {
    let json = json!({
        "kind": "channel",
        "metadata": { "name": name },
        "spec": { "version": version, "critical": version.ends_with('7') },
    });
    Some(Resource { json: json.to_string(), ..Default::default() })
}

/// Name, version and revision of an answer.
fn parts(resource: &Resource) -> (String, String, String) {
    let json: Value = serde_json::from_str(&resource.json).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&json["metadata"]["name"]), text(&json["spec"]["version"]), text(&json["metadata"]["revision"]))
}

/// One operation on one of `names`, and what must come of it.
async fn operate(
    client: &mut ResourceServiceClient<Channel>,
    names: &[String],
    model: &mut Model,
    rng: &mut SmallRng,
) {
    let kind = "channel".to_owned();
    let name = &names[rng.random_range(0..names.len())];
    let version =
        format!("{}.{}.{}", rng.random_range(0..20), rng.random_range(0..20), rng.random_range(0..20));
    let resource = document(name, &version);
    let exists = model.contains_key(name);
    let (outcome, refused) = match rng.random_range(0..5) {
        0 => {
            let created =
                client.create_resource(CreateResourceRequest { kind, resource, ..Default::default() }).await;
            (created.map(drop), exists.then_some(Code::AlreadyExists))
        }
        1 => {
            let updated =
                client.update_resource(UpdateResourceRequest { kind, resource, ..Default::default() }).await;
            (updated.map(drop), (!exists).then_some(Code::NotFound))
        }
        2 => (
            client
                .upsert_resource(UpsertResourceRequest { kind, resource, ..Default::default() })
                .await
                .map(drop),
            None,
        ),
        3 => {
            let found = client.get_resource(GetResourceRequest { kind, name: name.clone() }).await;
            match (&found, model.get(name)) {
                (Ok(found), Some(version)) => assert_eq!(&parts(found.get_ref()).1, version, "{name}"),
                (Err(status), None) => assert_eq!(status.code(), Code::NotFound),
                other => panic!("{name}: {other:?}"),
            }
            return;
        }
        _ => {
            let request = DeleteResourceRequest { kind, name: name.clone(), revision: String::new() };
            let deleted = client.delete_resource(request).await.map(drop);
            assert_eq!(
                deleted.err().map(|status| status.code()),
                (!exists).then_some(Code::NotFound),
                "{name}"
            );
            model.remove(name);
            return;
        }
    };
    assert_eq!(outcome.err().map(|status| status.code()), refused, "{name}");
    if refused.is_none() {
        model.insert(name.clone(), version);
    }
}

async fn lists(member: &Member, model: &Model, page_size: i32) {
    let (mut listed, mut page_token) = (Model::new(), String::new());
    let mut last = String::new();
    loop {
        let request = ListResourcesRequest { kind: "channel".into(), page_size, page_token };
        let page = member.client().list_resources(request).await.unwrap().into_inner();
        for resource in &page.resources {
            let (name, version, _) = parts(resource);
            assert!(last < name, "{name} after {last}");
            last.clone_from(&name);
            listed.insert(name, version);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(&listed, model);
}

/// Every client works on names of its own, at any of the servers, all of them at once.
async fn all_at_once(members: &[&Member], models: &mut [Model], operations: usize, seed: u64) {
    let clients = models.iter_mut().enumerate().map(|(n, model)| {
        let mut servers: Vec<_> = members.iter().map(|member| member.client()).collect();
        async move {
            let mut rng = SmallRng::seed_from_u64(seed * 1000 + n as u64);
            let names: Vec<String> = (0..12).map(|k| format!("client-{n}/{k}")).collect();
            for _ in 0..operations {
                let server = rng.random_range(0..servers.len());
                operate(&mut servers[server], &names, model, &mut rng).await;
            }
        }
    });
    join_all(clients).await;
    let all: Model = models.iter().flat_map(|model| model.clone()).collect();
    for member in members {
        lists(member, &all, 7).await;
        lists(member, &all, 1000).await;
    }
}

async fn store(name: &str) -> String {
    format!("etcd://{}/{name}-{:x}", Etcd::shared().await.endpoint(), rand::rng().next_u64())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_and_downgrade_lose_nothing() {
    let store = store("rolling").await;
    let operations = sweep(60, 3000);
    let mut models = vec![Model::new(); 4];
    let old = [Member::start(&store, old_release()).await, Member::start(&store, old_release()).await];
    all_at_once(&[&old[0], &old[1]], &mut models, operations, 1).await;
    let [first, second] = old;

    // One new server beside an old one: work goes on while the migration runs, and after it.
    first.stop().await;
    let new = Member::start(&store, new_release()).await;
    all_at_once(&[&new, &second], &mut models, operations, 2).await;
    new.migrated().await;
    all_at_once(&[&new, &second], &mut models, operations, 3).await;

    // All new.
    second.stop().await;
    let other = Member::start(&store, new_release()).await;
    all_at_once(&[&new, &other], &mut models, operations, 4).await;

    // Down by one version, one after the other.
    new.stop().await;
    let old = Member::start(&store, old_release()).await;
    all_at_once(&[&old, &other], &mut models, operations, 5).await;
    other.stop().await;
    all_at_once(&[&old], &mut models, operations, 6).await;

    // And up again: the migration is in the history and is not run a second time.
    let new = Member::start(&store, new_release()).await;
    all_at_once(&[&new, &old], &mut models, operations, 7).await;
    old.stop().await;
    all_at_once(&[&new], &mut models, operations, 8).await;
    new.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_editors_at_servers_of_two_releases_never_overwrite_each_other_unseen() {
    let store = store("editors").await;
    let (old, new) = (Member::start(&store, old_release()).await, Member::start(&store, new_release()).await);
    let mut first = old.client();
    let kind = || "channel".to_owned();
    let create =
        CreateResourceRequest { kind: kind(), resource: document("shared", "0.0.0"), ..Default::default() };
    first.create_resource(create).await.unwrap();
    let each = sweep(20, 300);
    let editors = (0..8).map(|n| {
        let mut client = if n % 2 == 0 { old.client() } else { new.client() };
        async move {
            let mut done = 0;
            while done < each {
                let get = GetResourceRequest { kind: "channel".into(), name: "shared".into() };
                let (_, version, revision) = parts(client.get_resource(get).await.unwrap().get_ref());
                let count: u64 = version.rsplit('.').next().unwrap().parse().unwrap();
                let json = json!({
                    "kind": "channel",
                    "metadata": { "name": "shared", "revision": revision },
                    "spec": { "version": format!("0.0.{}", count + 1) },
                });
                let resource = Some(Resource { json: json.to_string(), ..Default::default() });
                match client
                    .update_resource(UpdateResourceRequest {
                        kind: "channel".into(),
                        resource,
                        ..Default::default()
                    })
                    .await
                {
                    Ok(_) => done += 1,
                    Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
                }
            }
        }
    });
    join_all(editors).await;
    for mut client in [old.client(), new.client()] {
        let get = GetResourceRequest { kind: kind(), name: "shared".into() };
        let (_, version, _) = parts(client.get_resource(get).await.unwrap().get_ref());
        assert_eq!(version, format!("0.0.{}", 8 * each));
    }
    old.stop().await;
    new.stop().await;
}
