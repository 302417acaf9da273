//! A store that forwards everything to another one, and lets a test step in: before a transaction, after a read, or by
//! replacing the store behind it.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use refit_backend::{
    Backend, KeyRange, Lease, LeaseId, Read, Result, Revision, SharedBackend, Snapshot, Transaction, Watch,
};

/// What a test does to the calls of a store. By default nothing.
#[async_trait]
pub trait Intercept: Debug + Send + Sync + 'static {
    /// Runs before a transaction. An error refuses it.
    async fn before_transact(&self, _transaction: &Transaction) -> Result<()> {
        Ok(())
    }

    /// Runs after each read, before its caller sees the result.
    async fn after_read(&self) {}
}

impl Intercept for () {}

/// A store with a test between it and its users. Dereferences to what the test does.
#[derive(Debug)]
pub struct InterceptedBackend<I> {
    inner: RwLock<SharedBackend>,
    intercept: I,
}

impl<I> InterceptedBackend<I> {
    /// Puts `intercept` before the store.
    pub fn new(inner: SharedBackend, intercept: I) -> Arc<Self> {
        Arc::new(Self { inner: RwLock::new(inner), intercept })
    }

    /// The store itself, without the test before it.
    pub fn inner(&self) -> SharedBackend {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another store in its place, as if it had been restored from a backup.
    pub fn replace(&self, inner: SharedBackend) {
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = inner;
    }
}

impl<I> Deref for InterceptedBackend<I> {
    type Target = I;

    fn deref(&self) -> &I {
        &self.intercept
    }
}

#[async_trait]
impl<I: Intercept> Backend for InterceptedBackend<I> {
    fn describe(&self) -> String {
        self.inner().describe()
    }

    async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        let found = self.inner().read(reads).await;
        self.intercept.after_read().await;
        found
    }

    async fn transact(&self, transaction: Transaction) -> Result<Revision> {
        self.intercept.before_transact(&transaction).await?;
        self.inner().transact(transaction).await
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        self.inner().delete_range(range).await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease> {
        self.inner().grant_lease(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.inner().keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.inner().revoke_lease(lease).await
    }

    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch> {
        self.inner().watch(range, after).await
    }
}
