//! What a migration may do with the store: read, and write only while its server holds the lock.

use refit_backend::{
    Error, Key, KeyRange, Page, Read, Result, Revision, Scan, SharedBackend, Snapshot, Transaction,
};

use crate::MigrationError;

/// The store as a migration sees it: every write carries the compare that the lock is still the very
/// one that this server took. A server that stalled past its lease cannot write, whatever it believes.
#[derive(Debug)]
pub struct Guarded {
    backend: SharedBackend,
    lock: Key,
    taken_at: Revision,
}

impl Guarded {
    pub(crate) fn new(backend: SharedBackend, lock: Key, taken_at: Revision) -> Self {
        Self { backend, lock, taken_at }
    }

    /// Answers all reads from one moment of the store.
    pub async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        self.backend.read(reads).await
    }

    /// Up to `limit` items in key order.
    pub async fn range(&self, range: &KeyRange, limit: usize) -> Result<Page> {
        self.backend.range(range, limit).await
    }

    /// Reads a whole range, page by page.
    pub fn scan(&self, range: KeyRange) -> Scan<'_> {
        self.backend.scan(range)
    }

    /// Compares and writes, if the lock still holds. The guard is one of the transaction's keys.
    pub async fn transact(&self, transaction: Transaction) -> Result<Revision, MigrationError> {
        let guarded = transaction.expect_revision(&self.lock, self.taken_at);
        self.backend.transact(guarded).await.map_err(|error| match error {
            Error::Conflict { key } if key == self.lock => MigrationError::LockLost,
            other => MigrationError::Store(other),
        })
    }

    /// Writes the record of the migration and releases the lock in the same transaction.
    pub(crate) async fn finish(self, key: &Key, record: Vec<u8>) -> Result<Revision, MigrationError> {
        self.transact(Transaction::new().put(key, record).delete(&self.lock)).await
    }
}
