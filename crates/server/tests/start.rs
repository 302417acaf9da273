//! Server start: the cluster and files that it creates or reuses, and what it refuses.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cluster::{STATUS, call, connect, empty_store, settings, start};
use prost::Message;
use refit_identity::Identity;
use refit_proto::cluster::v1::Status;
use refit_server::{Server, Settings};
use refit_testbed::eventually;
use tempfile::TempDir;
use tokio::task::JoinSet;

const WITHIN: Duration = Duration::from_secs(30);

fn admin_of(data_dir: &Path) -> Identity {
    Identity::read(&data_dir.join("admin/identity.json")).unwrap()
}

async fn status(server: &Server, identity: &Identity) -> Status {
    let channel = connect(server, Some(identity)).await;
    Status::decode(call(&channel, STATUS, Bytes::new()).await.unwrap()).unwrap()
}

async fn refusal(settings: Settings) -> String {
    start(settings).await.expect_err("a server that does not start").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_at_once_are_one_cluster() {
    const COUNT: usize = 5;
    let store = empty_store().await;
    let directories: Vec<TempDir> = (0..COUNT).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut starting = JoinSet::new();
    for directory in &directories {
        let settings = Settings { backend: Some(store.clone()), ..settings(directory.path()) };
        starting.spawn(start(settings));
    }
    let mut servers: Vec<Server> = starting.join_all().await.into_iter().map(Result::unwrap).collect();

    let pins: BTreeSet<String> = servers.iter().map(|server| server.ca_pin.to_string()).collect();
    assert_eq!(pins.len(), 1, "{pins:?}");
    for directory in &directories {
        let admin = admin_of(directory.path());
        for server in &servers {
            let status = status(server, &admin).await;
            assert!(pins.contains(&status.ca_pin), "{status:?}");
        }
    }

    let admin = admin_of(directories[0].path());
    eventually("all are listed", WITHIN, async || status(&servers[0], &admin).await.servers.len() == COUNT)
        .await;
    servers.pop().unwrap().shut_down().await;
    let left = status(&servers[0], &admin).await.servers;
    assert_eq!(left.len(), COUNT - 1, "one that was told to stop is gone at once: {left:?}");
    assert_eq!(left.iter().filter(|server| server.answering).count(), 1, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_finds_what_the_first_made() {
    let directory = tempfile::tempdir().unwrap();
    let identity = directory.path().join("admin/identity.json");
    let first = start(settings(directory.path())).await.unwrap();
    let (pin, bytes) = (first.ca_pin, std::fs::read(&identity).unwrap());
    let running = refusal(settings(directory.path())).await;
    assert!(running.contains("in use by another server"), "{running}");
    status(&first, &admin_of(directory.path())).await;

    // It is already there while the first one ends.
    let (second, ()) = futures::join!(start(settings(directory.path())), first.shut_down());
    let second = second.unwrap();
    assert_eq!(second.ca_pin, pin);
    assert!(std::fs::read(&identity).unwrap() == bytes, "the identity that people copied was replaced");
    status(&second, &admin_of(directory.path())).await;
    second.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_of_another_cluster_is_replaced() {
    let [old, new] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    start(settings(old.path())).await.unwrap().shut_down().await;
    std::fs::create_dir(new.path().join("admin")).unwrap();
    admin_of(old.path()).write(&new.path().join("admin/identity.json")).unwrap();
    let server = start(settings(new.path())).await.unwrap();
    status(&server, &admin_of(new.path())).await;
    server.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let named = |name: &str| Settings { cluster_name: Some(name.to_owned()), ..settings(directory.path()) };
    let first = start(named("first")).await.unwrap();
    assert_eq!(first.cluster.as_str(), "first");
    first.shut_down().await;
    let other = refusal(named("second")).await;
    assert!(other.contains(r#""first""#) && other.contains(r#""second""#), "{other}");
    let again = start(settings(directory.path())).await.unwrap();
    assert_eq!(again.cluster.as_str(), "first", "without a name, the stored one holds");
    again.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let in_the_way = refusal(settings(&file)).await;
    assert!(in_the_way.contains("file cannot be used") && in_the_way.contains("--data-dir"), "{in_the_way}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = Settings { listen: Some(address.clone()), ..settings(directory.path()) };
    let refused = refusal(listen).await;
    assert!(refused.contains(&address) && refused.contains("with --listen"), "{refused}");
    let diag = Settings { diag_listen: Some(address.clone()), ..settings(directory.path()) };
    let refused = refusal(diag).await;
    assert!(refused.contains(&address) && refused.contains("with --diag-listen"), "{refused}");
    start(settings(directory.path())).await.unwrap().shut_down().await;
}
