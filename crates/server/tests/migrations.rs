//! Migrations as an operator sees them: failures are reported everywhere, the server keeps running, and `apply` works
//! once the cause is fixed.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refit_identity::{Identity, SERVER_NAME, client_config};
use refit_migrations::{Migration, MigrationError, Registry};
use refit_proto::cluster::v1::GetStatusRequest;
use refit_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use refit_proto::migrations::v1::migration_service_client::MigrationServiceClient;
use refit_proto::migrations::v1::{ApplyMigrationsRequest, ListMigrationsRequest, Migration as Listed};
use refit_server::{Release, Server, Settings};
use refit_testbed::{Etcd, directory, eventually};
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Running {
    server: Server,
    channel: Channel,
}

async fn start(data: &TempDir, migrations: Vec<Migration>) -> Running {
    start_on(None, data, migrations).await
}

async fn start_on(store: Option<&str>, data: &TempDir, migrations: Vec<Migration>) -> Running {
    let settings = Settings {
        backend: store.map(str::to_owned),
        listen: Some("127.0.0.1:0".into()),
        diag_listen: Some("127.0.0.1:0".into()),
        ..Settings::default()
    };
    let release =
        Release { migrations: Registry::of(migrations), ..Release::current("1.0.0".parse().unwrap()) };
    let server = Server::start(settings.check(&data.path().join("data")).unwrap(), release).await.unwrap();
    let identity = Identity::read(&data.path().join("data/admin/identity.json")).unwrap();
    let (name, tls) = (ServerName::try_from(SERVER_NAME).unwrap(), client_config(&identity).unwrap());
    let channel = refit_proto::dial(&server.local_address().to_string(), name, tls).await.unwrap();
    Running { server, channel }
}

impl Running {
    fn client(&self) -> MigrationServiceClient<Channel> {
        MigrationServiceClient::new(self.channel.clone())
    }

    /// Applies migrations, once the run at the server's start has ended.
    async fn apply(&self) -> Result<(), Status> {
        let attempt = async || self.client().apply_migrations(ApplyMigrationsRequest {}).await.map(drop);
        let idle =
            async || !attempt().await.is_err_and(|refused| refused.message().contains("applied already"));
        eventually("the run at the start has ended", TIMEOUT, idle).await;
        attempt().await
    }

    async fn list(&self) -> Vec<Listed> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListMigrationsRequest { page_size: 1, page_token };
            let page = self.client().list_migrations(request).await.unwrap().into_inner();
            assert!(page.migrations.len() <= 1, "a page of one");
            all.extend(page.migrations);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }

    async fn metric(&self, number: u32, outcome: &str) -> bool {
        let mut stream = TcpStream::connect(self.server.diag_address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text.contains(&format!("refit_migrations{{number=\"{number}\",outcome=\"{outcome}\"}} 1"))
    }

    async fn shows(&self, number: u32, outcome: &str) {
        let what = format!("migration {number} shows {outcome}");
        eventually(&what, TIMEOUT, async || self.metric(number, outcome).await).await;
    }

    async fn serves(&self) {
        let mut client = ClusterServiceClient::new(self.channel.clone());
        client.get_status(GetStatusRequest {}).await.unwrap();
    }
}

fn fine(number: u32, source: &'static str) -> Migration {
    Migration { number, name: "fine", source, run: |_| Box::pin(async { Ok("success".into()) }) }
}

fn failing(number: u32) -> Migration {
    Migration {
        number,
        name: "failing",
        source: "failing",
        run: |_| {
            Box::pin(async {
                Err(MigrationError::Item { key: "/some/thing".into(), reason: "it is broken".into() })
            })
        },
    }
}

#[tokio::test]
async fn a_failure_is_told_everywhere_and_can_be_applied_again() {
    let data = directory();
    let running = start(&data, vec![fine(1, "a"), failing(2), fine(3, "c")]).await;
    running.shows(2, "failure").await;
    running.shows(1, "success").await;
    running.shows(3, "pending").await;
    running.serves().await;
    let listed = running.list().await;
    assert_eq!(listed.iter().map(|m| (m.number, m.success)).collect::<Vec<_>>(), [(1, true), (2, false)]);
    assert_eq!(listed[0].message, "success");
    assert!(
        listed[1].message.contains("/some/thing cannot be migrated: it is broken"),
        "{}",
        listed[1].message
    );
    assert_eq!(listed[1].metadata.as_ref().unwrap().name, "failing");
    assert!(listed[1].applied_at.is_some() && listed[1].execution_time.is_some());
    let again = running.apply().await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert!(again.message().contains("migration 0002 \"failing\" failed"), "{again}");
    running.server.shut_down().await;

    // The next release mends it.
    let mended = Migration { name: "failing", ..fine(2, "mended") };
    let running = start(&data, vec![fine(1, "a"), mended, fine(3, "c")]).await;
    running.shows(3, "success").await;
    running.apply().await.unwrap();
    assert!(running.list().await.iter().all(|migration| migration.success));
    running.server.shut_down().await;
}

#[tokio::test]
async fn an_altered_migration_stops_migrations_and_not_the_server() {
    let data = directory();
    let first = start(&data, vec![fine(1, "as released")]).await;
    first.shows(1, "success").await;
    first.server.shut_down().await;

    let altered = start(&data, vec![fine(1, "altered"), fine(2, "b")]).await;
    let refused = altered.apply().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("a released migration was altered or reordered"), "{refused}");
    altered.serves().await;
    assert!(altered.metric(2, "pending").await);
    assert_eq!(altered.list().await.len(), 1);
    altered.server.shut_down().await;

    // A server that knows fewer is an older one, and all is well with it.
    let newer = start(&data, vec![fine(1, "as released"), fine(2, "b")]).await;
    newer.shows(2, "success").await;
    newer.server.shut_down().await;
    let older = start(&data, vec![fine(1, "as released")]).await;
    older.apply().await.unwrap();
    assert_eq!(older.list().await.len(), 2);
    older.server.shut_down().await;
}

#[tokio::test]
async fn every_server_shows_what_was_applied_on_one() {
    static BROKEN: AtomicBool = AtomicBool::new(true);
    let fragile = Migration {
        run: |_| {
            Box::pin(async {
                if BROKEN.load(Ordering::SeqCst) {
                    return Err(MigrationError::Item {
                        key: "/some/thing".into(),
                        reason: "it is broken".into(),
                    });
                }
                Ok("success".into())
            })
        },
        ..failing(2)
    };
    let store = format!("etcd://{}/migrations-{}", Etcd::shared().await.endpoint(), std::process::id());
    let migrations = vec![fine(1, "a"), fragile, fine(3, "c")];
    let (one_data, two_data) = (directory(), directory());
    let one = start_on(Some(&store), &one_data, migrations.clone()).await;
    let two = start_on(Some(&store), &two_data, migrations).await;
    for server in [&one, &two] {
        server.shows(2, "failure").await;
        server.shows(3, "pending").await;
    }
    BROKEN.store(false, Ordering::SeqCst);
    one.apply().await.unwrap();
    for server in [&one, &two] {
        server.shows(2, "success").await;
        server.shows(3, "success").await;
        assert!(!server.metric(2, "failure").await);
    }
    one.server.shut_down().await;
    two.server.shut_down().await;
}
