//! A store that is replaced by a backup of itself under a running server.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use refit_backend::{
    Backend, KeyRange, Lease, LeaseId, Read, Result, Revision, SharedBackend, Snapshot, Transaction, Watch,
};
use refit_testbed::eventually;

use super::bare::WITHIN;
use super::{Bare, beat, group, host, store};

/// A store that can be exchanged for another one.
#[derive(Debug)]
struct Exchanged(RwLock<SharedBackend>);

impl Exchanged {
    fn now(&self) -> SharedBackend {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[tonic::async_trait]
impl Backend for Exchanged {
    fn describe(&self) -> String {
        self.now().describe()
    }

    async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        self.now().read(reads).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Revision> {
        self.now().transact(transaction).await
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        self.now().delete_range(range).await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease> {
        self.now().grant_lease(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.now().keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.now().revoke_lease(lease).await
    }

    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch> {
        self.now().watch(range, after).await
    }
}

#[tokio::test]
async fn what_was_known_of_a_store_that_has_gone_back_in_time_is_forgotten() {
    let backup: SharedBackend = store();
    Bare::with_hosts(&backup, 2).await;
    let exchanged = Arc::new(Exchanged(RwLock::new(store())));
    let backend: SharedBackend = exchanged.clone();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 4).await;

    *exchanged.0.write().unwrap() = backup.clone();
    bare.rollouts.operator_changed().await.unwrap();
    assert!(bare.fleet.view().rollout.is_none(), "nothing is rolled out in the backup");
    eventually("the hosts of the backup", WITHIN, async || {
        let view = bare.fleet.view();
        view.is_loaded && view.hosts.len() == 2
    })
    .await;
    assert!(!bare.fleet.view().answer(Some(host(1)), bare.fleet.clock()).auto_update);
    // And it goes on from there.
    bare.say(vec![group("all", 100)], "3.0.0").await;
    let record = bare.until("all", |record| record.in_flight == 2).await;
    assert_eq!((record.epoch, record.members), (1, 2));
    bare.hears(1, &beat("3.0.0", 1, 0)).await;
    bare.until("all", |record| record.upgraded == 1).await;
}
