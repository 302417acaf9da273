//! Where the control plane keeps things: ordered keys, revisions, transactions, leases and watches,
//! the same on SQLite, on etcd and in memory.
//!
//! The seven required methods of [`Backend`] are what a store must be able to do; everything else is
//! written once, on top of them. `tests/conformance` is the contract as a suite that all three pass.

mod backoff;
mod error;
mod etcd;
mod follow;
mod item;
mod key;
mod leases;
mod limits;
mod memory;
mod scan;
mod sqlite;
mod transaction;
mod watch;
mod watch_log;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use backoff::Backoff;
pub use error::{Error, Result};
pub use etcd::{EtcdAddress, EtcdBackend};
pub use follow::follow;
pub use item::{Item, Lease, LeaseId, Page, Read, Snapshot};
pub use key::{Key, KeyRange};
pub use limits::{MAX_KEY_BYTES, MAX_PAGE_ITEMS, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEYS};
pub use memory::MemoryBackend;
pub use refit_types::Revision;
pub use scan::Scan;
pub use sqlite::SqliteBackend;
pub use transaction::{Compare, Expect, Transaction, Write};
pub use watch::{Change, Event, Watch};

/// A store shared by everything that a server does.
pub type SharedBackend = Arc<dyn Backend>;

/// One ordered, revisioned key-value store. Any number of servers may share one when it is etcd.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Names the store for people, without credentials.
    fn describe(&self) -> String;

    /// Answers all reads from one moment of the store.
    async fn read(&self, reads: &[Read]) -> Result<Snapshot>;

    /// Compares, then writes: all of it or nothing. Everything written shares the revision returned;
    /// a transaction that changes nothing returns the store's present one.
    async fn transact(&self, transaction: Transaction) -> Result<Revision>;

    /// Deletes every key of the range at once and says how many there were.
    async fn delete_range(&self, range: &KeyRange) -> Result<u64>;

    /// Starts a lease: items that carry it vanish when it is not kept alive for `ttl`. The store may
    /// grant longer than asked.
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease>;

    /// Restarts the lease's time, or says [`Error::LeaseNotFound`] when it is over.
    async fn keep_alive(&self, lease: LeaseId) -> Result<()>;

    /// Ends the lease and deletes its items now.
    async fn revoke_lease(&self, lease: LeaseId) -> Result<()>;

    /// Follows every change in the range with a revision above `after`. A watch that cannot give all
    /// of them ends with [`Error::WatchLost`]: read the range again and watch from there.
    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch>;

    /// The item at `key`, if there is one.
    async fn get(&self, key: &Key) -> Result<Option<Item>> {
        let mut snapshot = self.read(&[Read::Key(key.clone())]).await?;
        Ok(snapshot.take(0).items.pop())
    }

    /// Up to `limit` items in key order. For all of a range use `scan`.
    async fn range(&self, range: &KeyRange, limit: usize) -> Result<Page> {
        let read = Read::Range { range: range.clone(), limit };
        Ok(self.read(&[read]).await?.take(0))
    }

    /// Writes a key that must not exist.
    async fn create(&self, key: &Key, value: Bytes) -> Result<Revision> {
        let transaction = Transaction::new().expect_absent(key).put(key, value);
        self.transact(transaction).await.map_err(|error| match error {
            Error::Conflict { key } => Error::AlreadyExists { key },
            other => other,
        })
    }

    /// Writes a key, whether it exists or not.
    async fn put(&self, key: &Key, value: Bytes) -> Result<Revision> {
        self.transact(Transaction::new().put(key, value)).await
    }

    /// Writes a key that must exist.
    async fn update(&self, key: &Key, value: Bytes) -> Result<Revision> {
        let transaction = Transaction::new().expect_present(key).put(key, value);
        self.transact(transaction).await.map_err(conflict_is_absence)
    }

    /// Deletes a key that must exist.
    async fn delete(&self, key: &Key) -> Result<Revision> {
        let transaction = Transaction::new().expect_present(key).delete(key);
        self.transact(transaction).await.map_err(conflict_is_absence)
    }
}

fn conflict_is_absence(error: Error) -> Error {
    match error {
        Error::Conflict { key } => Error::NotFound { key },
        other => other,
    }
}
