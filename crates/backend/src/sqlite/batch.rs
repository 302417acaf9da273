//! One group commit of the SQLite writer: applies queued operations to the database and collects their events and
//! lease changes, which the writer publishes after the commit.

use std::time::Instant;

use rusqlite::{Connection, Statement, params};

use super::failure::damaged;
use super::shared_leases::SharedLeases;
use crate::{
    Change, Error, Event, Item, Key, KeyRange, Lease, LeaseId, Result, Revision, Transaction, Write,
};

const PUT: &str = "INSERT INTO items (key, value, revision, lease) VALUES (?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE
    SET value = excluded.value, revision = excluded.revision, lease = excluded.lease";

/// Deletes what a lease holds and says what that was.
pub(super) const DELETE_LEASED: &str = "DELETE FROM items WHERE lease = ? RETURNING key";

/// One write operation. Operations are applied one at a time, in the order of arrival.
#[derive(Debug)]
pub(super) enum Operation {
    Transact(Transaction),
    DeleteRange(KeyRange),
    Grant(Lease),
    Revoke(LeaseId),
}

/// The statements of the writer, prepared once.
pub(super) struct Statements<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    keep_revision: Statement<'c>,
    revision_of: Statement<'c>,
    put: Statement<'c>,
    delete: Statement<'c>,
    delete_range: Statement<'c>,
    delete_leased: Statement<'c>,
    add_lease: Statement<'c>,
    delete_lease: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Self {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            keep_revision: prepare("UPDATE store SET revision = ?")?,
            revision_of: prepare("SELECT revision FROM items WHERE key = ?")?,
            put: prepare(PUT)?,
            delete: prepare("DELETE FROM items WHERE key = ?")?,
            delete_range: prepare("DELETE FROM items WHERE key >= ? AND key < ? RETURNING key")?,
            delete_leased: prepare(DELETE_LEASED)?,
            add_lease: prepare("INSERT INTO leases (id, ttl_ms) VALUES (?, ?)")?,
            delete_lease: prepare("DELETE FROM leases WHERE id = ?")?,
        })
    }
}

/// Operations that share one commit, and the events and lease changes to publish after it. Until the commit nothing
/// outside of the database has changed, so a failed batch is simply dropped.
pub(super) struct Batch<'b, 'c> {
    statements: &'b mut Statements<'c>,
    leases: &'b SharedLeases,
    now: Instant,
    revision: Revision,
    before: Revision,
    /// What happened, in the order of revisions.
    pub(super) events: Vec<Event>,
    /// Leases whose time begins when the batch is committed.
    pub(super) started: Vec<Lease>,
    /// Leases that are over once the batch is committed.
    pub(super) ended: Vec<LeaseId>,
}

impl<'b, 'c> Batch<'b, 'c> {
    /// Begins at `now` on a store that stands at `revision`.
    pub(super) fn begin(
        statements: &'b mut Statements<'c>,
        leases: &'b SharedLeases,
        now: Instant,
        revision: Revision,
    ) -> rusqlite::Result<Self> {
        statements.begin.raw_execute()?;
        let (events, started, ended) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { statements, leases, now, revision, before: revision, events, started, ended })
    }

    /// Applies one operation. After a refusal nothing has changed and the batch is usable; after an SQLite error it is not.
    pub(super) fn apply(&mut self, operation: &Operation) -> rusqlite::Result<Result<u64>> {
        match operation {
            Operation::Transact(transaction) => self.transact(transaction),
            Operation::DeleteRange(range) => {
                let (start, end) = (range.start(), range.end());
                let keys = collect_keys(&mut self.statements.delete_range, params![start, end])?;
                Ok(Ok(self.deleted(keys)))
            }
            Operation::Grant(lease) => {
                let ttl_ms = i64::try_from(lease.ttl.as_millis()).unwrap_or(i64::MAX);
                self.statements.add_lease.execute(params![lease.id.0, ttl_ms])?;
                self.started.push(*lease);
                Ok(Ok(0))
            }
            Operation::Revoke(lease) if !self.is_live(*lease) => Ok(Err(Error::LeaseNotFound(*lease))),
            Operation::Revoke(lease) => self.end_lease(*lease).map(Ok),
        }
    }

    /// Deletes the lease with its items; how many there were.
    pub(super) fn end_lease(&mut self, lease: LeaseId) -> rusqlite::Result<u64> {
        let keys = collect_keys(&mut self.statements.delete_leased, params![lease.0])?;
        self.statements.delete_lease.execute(params![lease.0])?;
        self.ended.push(lease);
        Ok(self.deleted(keys))
    }

    /// Commits to disk; returns the new revision of the store.
    pub(super) fn commit(&mut self) -> rusqlite::Result<Revision> {
        if self.revision > self.before {
            self.statements.keep_revision.execute(params![self.revision.0.cast_signed()])?;
        }
        self.statements.commit.raw_execute()?;
        Ok(self.revision)
    }

    fn is_live(&self, lease: LeaseId) -> bool {
        !self.ended.contains(&lease) && self.leases.lock().is_live(lease, self.now)
    }

    fn transact(&mut self, transaction: &Transaction) -> rusqlite::Result<Result<u64>> {
        for compare in transaction.compares() {
            let mut rows = self.statements.revision_of.query(params![compare.key.as_str().as_bytes()])?;
            let found = rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()?;
            if !compare.expect.holds(found.map(|found| Revision(found.cast_unsigned()))) {
                return Ok(Err(Error::Conflict { key: compare.key.clone() }));
            }
        }
        for write in transaction.writes() {
            if let Write::Put { lease: Some(lease), .. } = write
                && !self.is_live(*lease)
            {
                return Ok(Err(Error::LeaseNotFound(*lease)));
            }
        }
        let revision = Revision(self.revision.0 + 1);
        for write in transaction.writes() {
            if let Some(change) = self.write(write, revision)? {
                self.events.push(Event { revision, change });
                self.revision = revision;
            }
        }
        Ok(Ok(self.revision.0))
    }

    fn write(&mut self, write: &Write, revision: Revision) -> rusqlite::Result<Option<Change>> {
        let path = write.key().as_str().as_bytes();
        match write {
            Write::Put { key, value, lease } => {
                let (number, holder) = (revision.0.cast_signed(), lease.map(|lease| lease.0));
                self.statements.put.execute(params![path, &value[..], number, holder])?;
                let item = Item { key: key.clone(), value: value.clone(), revision, lease: *lease };
                Ok(Some(Change::Put(item)))
            }
            Write::Delete { key } => {
                let deleted = self.statements.delete.execute(params![path])?;
                Ok((deleted > 0).then(|| Change::Delete(key.clone())))
            }
        }
    }

    fn deleted(&mut self, keys: Vec<Key>) -> u64 {
        let count = keys.len() as u64;
        if count > 0 {
            self.revision.0 += 1;
            let revision = self.revision;
            self.events.extend(keys.into_iter().map(|key| Event { revision, change: Change::Delete(key) }));
        }
        count
    }
}

fn collect_keys(statement: &mut Statement<'_>, values: impl rusqlite::Params) -> rusqlite::Result<Vec<Key>> {
    let mut rows = statement.query(values)?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key_of(row)?);
    }
    keys.sort_unstable();
    Ok(keys)
}

/// The key in the first column of a row.
pub(super) fn key_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Key> {
    let path = row.get_ref(0)?.as_blob().ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
    path.and_then(|path| Key::new(path).ok()).ok_or_else(|| damaged("it holds a key that is none"))
}
