//! The conformance suite on etcd, and tests of what can fail only in a store behind a network.

mod access;
mod address;
mod cluster;
#[path = "../conformance/mod.rs"]
mod conformance;
mod network;

use std::sync::Arc;
use std::time::Duration;

use refit_backend::{Backend, Error, EtcdAddress, EtcdBackend, Key, Result, SharedBackend, Watch};
use refit_testbed::Etcd;

use conformance::{bytes, key, within};

/// A store of its own: others would move its revision on.
struct OnEtcd {
    etcd: Etcd,
    backend: EtcdBackend,
}

impl conformance::Store for OnEtcd {
    async fn open() -> Self {
        let etcd = Etcd::start().await;
        let backend = connect(&format!("etcd://{}", etcd.endpoint())).await.expect("a store that answers");
        Self { etcd, backend }
    }

    fn backend(&self) -> SharedBackend {
        Arc::new(self.backend.clone())
    }

    async fn forget_history(&self) {
        compact(&self.etcd, &self.backend).await;
    }
}

conformance::suite!(OnEtcd);

async fn connect(address: &str) -> Result<EtcdBackend> {
    EtcdBackend::connect(&EtcdAddress::parse(address)?).await
}

/// etcd keeps the last revision, so another one comes first.
async fn compact(etcd: &Etcd, backend: &EtcdBackend) {
    etcd.ctl(&["put", "/elsewhere", ""]).await;
    let revision = backend.read(&[]).await.expect("a store that answers").revision;
    etcd.ctl(&["compaction", &revision.to_string()]).await;
}

/// Creates the key, however often the store has to be asked.
async fn create_for_sure(backend: &EtcdBackend, key: &Key) {
    let ask = async {
        loop {
            match backend.create(key, bytes("")).await {
                Ok(_) | Err(Error::AlreadyExists { .. }) => return,
                Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("{key}: {other}"),
            }
        }
    };
    within("a write", ask).await;
}

async fn next_keys(watch: &mut Watch, count: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let event = within("an event", watch.next()).await.expect("a watch that goes on");
        keys.push(event.key().clone());
    }
    keys
}
