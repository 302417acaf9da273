//! A backend that can hold writes back, to test late commits.

use std::sync::Arc;
use std::time::Duration;

use refit_backend::{
    Backend, KeyRange, Lease, LeaseId, Read, Result, Revision, SharedBackend, Snapshot, Transaction, Watch,
};
use refit_testbed::eventually;
use tokio::sync::watch;

/// Passes everything on, but holds transactions that write below a prefix.
#[derive(Debug)]
pub(crate) struct HeldBackend {
    inner: SharedBackend,
    prefix: watch::Sender<Option<&'static str>>,
    held: watch::Sender<u32>,
}

impl HeldBackend {
    pub(crate) fn new(inner: SharedBackend) -> Arc<Self> {
        Arc::new(Self { inner, prefix: watch::Sender::new(None), held: watch::Sender::new(0) })
    }

    /// The store itself, for those who are not held.
    pub(crate) fn inner(&self) -> SharedBackend {
        self.inner.clone()
    }

    pub(crate) fn hold(&self, prefix: &'static str) {
        self.prefix.send_replace(Some(prefix));
    }

    pub(crate) fn release(&self) {
        self.prefix.send_replace(None);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held() > 0
    }

    /// How many transactions were held so far.
    pub(crate) fn held(&self) -> u32 {
        *self.held.borrow()
    }

    pub(crate) async fn until_held(&self) {
        eventually("a transaction is held", Duration::from_secs(30), async || self.is_held()).await;
    }
}

#[tonic::async_trait]
impl Backend for HeldBackend {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        self.inner.read(reads).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Revision> {
        let is_below =
            |prefix: &str| transaction.writes().iter().any(|write| write.key().as_str().starts_with(prefix));
        let mut held = self.prefix.subscribe();
        let is_free = |prefix: &Option<&'static str>| prefix.is_none_or(|prefix| !is_below(prefix));
        if !is_free(&held.borrow_and_update()) {
            self.held.send_modify(|held| *held += 1);
            let _ = held.wait_for(|prefix| is_free(prefix)).await;
        }
        self.inner.transact(transaction).await
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        self.inner.delete_range(range).await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease> {
        self.inner.grant_lease(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.inner.keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.inner.revoke_lease(lease).await
    }

    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch> {
        self.inner.watch(range, after).await
    }
}
