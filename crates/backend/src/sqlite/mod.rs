//! The store in one file, for one server: SQLite with a writer that commits for many callers at once.

mod batch;
mod failure;
mod file;
mod queue;
mod reader;
mod schema;
mod shared_leases;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use batch::Operation;
use failure::failed;
use file::Found;
use reader::Readers;
use shared_leases::SharedLeases;
use writer::Writer;

use crate::leases::new_lease;
use crate::watch_log::WatchLog;
use crate::{Backend, Error, KeyRange, Lease, LeaseId, Read, Result, Revision, Snapshot, Transaction, Watch};

/// A store in one local file, so that a server needs nothing beside itself. What a call has written
/// survives a power cut once the call returns. Lease times restart when it is opened.
#[derive(Debug, Clone)]
pub struct SqliteBackend {
    shared: Arc<Shared>,
}

/// Dropped from top to bottom: the writer goes after the readers, since the last connection of all
/// checkpoints, and the lock goes last.
#[derive(Debug)]
struct Shared {
    readers: Readers,
    writer: Writer,
    leases: Arc<SharedLeases>,
    log: Arc<WatchLog>,
    path: PathBuf,
    _lock: File,
}

impl SqliteBackend {
    /// Opens the store at `path` for this process alone, or makes one where there is nothing. Anything
    /// else that is found there is refused and left as it is.
    pub fn open(path: &Path) -> Result<Self> {
        let store = format!("sqlite {}", path.display());
        file::make_directory(path).map_err(|error| Error::Failed {
            store: store.clone(),
            reason: format!("its directory cannot be made: {error}"),
        })?;
        let lock = file::lock(path)?;
        if file::examine(path)? == Found::Nothing {
            file::create_whole(path, |path| schema::create(path).map_err(|error| failed(&store, &error)))?;
        }
        let connection = schema::open_writer(path)?;
        let load = || Ok((schema::revision(&connection)?, schema::leases(&connection)?));
        let (revision, found) = load().map_err(|error| failed(&store, &error))?;
        let leases = Arc::new(SharedLeases::default());
        let now = Instant::now();
        found.into_iter().for_each(|lease| leases.lock().start(lease, now));
        let log = Arc::new(WatchLog::starting_at(revision));
        let readers = Readers::start(path, &store, &leases)?;
        let writer = Writer::start(connection, store, revision, leases.clone(), log.clone())?;
        let shared = Shared { readers, writer, leases, log, path: path.into(), _lock: lock };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Commits since the store was opened: each costs a sync, which concurrent [`writes`](Self::writes) share.
    pub fn commits(&self) -> u64 {
        self.shared.writer.counts().commits.load(Ordering::Relaxed)
    }

    /// Transactions, deletions and leases since the store was opened: compared with [`commits`](Self::commits) it shows
    /// how well writes share a sync.
    pub fn writes(&self) -> u64 {
        self.shared.writer.counts().writes.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    fn describe(&self) -> String {
        format!("sqlite {}", self.shared.path.display())
    }

    async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        Read::check(reads)?;
        self.shared.readers.ask(reads).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Revision> {
        transaction.check()?;
        let bytes = transaction.byte_count();
        self.shared.writer.ask(Operation::Transact(transaction), bytes).await.map(Revision)
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        self.shared.writer.ask(Operation::DeleteRange(range.clone()), 0).await
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease> {
        let lease = new_lease(ttl);
        self.shared.writer.ask(Operation::Grant(lease), 0).await.map(|_| lease)
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.shared.leases.keep_alive(lease)
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.shared.writer.ask(Operation::Revoke(lease), 0).await.map(drop)
    }

    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch> {
        Ok(self.shared.log.watch(range.clone(), after))
    }
}
