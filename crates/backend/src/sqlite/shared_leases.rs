//! The lease table behind the lock that writer and readers share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::leases::LeaseTable;
use crate::{LeaseId, Result};

/// The live leases, shared by the writer, the readers and keep-alives. The clock is read under the lock, so that later
/// callers see a later time: no lease is found expired by one caller and revived by the next.
#[derive(Debug, Default)]
pub(super) struct SharedLeases {
    table: Mutex<LeaseTable>,
}

impl SharedLeases {
    pub(super) fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        let mut table = self.lock();
        table.keep_alive(lease, Instant::now())
    }

    /// The leases that are over and whose items are still there, and the moment of saying so.
    pub(super) fn expired(&self) -> (Instant, Vec<LeaseId>) {
        let table = self.lock();
        let now = Instant::now();
        (now, table.expired(now))
    }
}
