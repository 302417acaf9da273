//! The reader threads: each has a read-only connection and answers snapshots from one SQLite read transaction.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use rusqlite::{Connection, Statement, params};
use tokio::sync::oneshot;

use super::batch::key_of;
use super::failure::failed;
use super::queue::{CloseOnDrop, Queue};
use super::schema::open_reader;
use super::shared_leases::SharedLeases;
use crate::{Error, Item, LeaseId, Page, Read, Result, Revision, Snapshot};

const GET: &str = "SELECT key, value, revision, lease FROM items WHERE key = ?";

/// One page: the reader stops when it has enough, which also counts right when it skips expired items.
pub(super) const RANGE: &str =
    "SELECT key, value, revision, lease FROM items WHERE key >= ? AND key < ? ORDER BY key";

/// Reads that wait while all threads are busy.
const QUEUE: u32 = 1024;

/// Reader threads with a connection each. Nearly all reads are served from memory, so more threads than processors
/// gain nothing; with fewer than two, a get would wait behind every large page.
#[derive(Debug)]
pub(super) struct Readers {
    queue: Arc<Queue<Job>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Job {
    reads: Vec<Read>,
    answer: oneshot::Sender<Result<Snapshot>>,
}

impl Readers {
    pub(super) fn start(path: &Path, store: &str, leases: &Arc<SharedLeases>) -> Result<Self> {
        let count = thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 8));
        let mut readers = Self { queue: Arc::new(Queue::new(QUEUE)), threads: Vec::new() };
        for number in 0..count {
            let connection = open_reader(path).map_err(|error| failed(store, &error))?;
            let (queue, store, leases) = (readers.queue.clone(), store.to_owned(), leases.clone());
            let run = move || serve(&queue, &connection, &store, &leases);
            let thread = thread::Builder::new().name(format!("sqlite-read-{number}")).spawn(run);
            readers.threads.push(thread.map_err(|error| Error::Failed {
                store: format!("sqlite {}", path.display()),
                reason: format!("no thread can be started: {error}"),
            })?);
        }
        Ok(readers)
    }

    pub(super) async fn ask(&self, reads: &[Read]) -> Result<Snapshot> {
        let (answer, answered) = oneshot::channel();
        self.queue.push(1, Job { reads: reads.to_vec(), answer }).await?;
        answered.await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn serve(queue: &Queue<Job>, connection: &Connection, store: &str, leases: &SharedLeases) {
    let _closed = CloseOnDrop(queue);
    let mut reader = Reader::prepare(connection);
    let mut jobs = Vec::with_capacity(1);
    while queue.take(&mut jobs, 1, None) {
        for Job { reads, answer } in jobs.drain(..).filter(|job| !job.answer.is_closed()) {
            let result = match &mut reader {
                Ok(reader) => reader.answer(&reads, leases).map_err(|error| failed(store, &error)),
                Err(error) => Err(failed(store, error)),
            };
            if !connection.is_autocommit() {
                drop(connection.execute_batch("ROLLBACK"));
            }
            drop(answer.send(result));
        }
    }
}

struct Reader<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    revision: Statement<'c>,
    get: Statement<'c>,
    range: Statement<'c>,
}

impl<'c> Reader<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Self {
            begin: prepare("BEGIN")?,
            commit: prepare("COMMIT")?,
            revision: prepare("SELECT revision FROM store")?,
            get: prepare(GET)?,
            range: prepare(RANGE)?,
        })
    }

    fn answer(&mut self, reads: &[Read], leases: &SharedLeases) -> rusqlite::Result<Snapshot> {
        // Before the snapshot begins: a lease that is no longer in the table has no items in the snapshot.
        let (_, expired) = leases.expired();
        self.begin.raw_execute()?;
        let revision: i64 = self.revision.query_row([], |row| row.get(0))?;
        let revision = Revision(revision.cast_unsigned());
        let pages = reads.iter().map(|read| self.page(read, revision, &expired));
        let pages = pages.collect::<rusqlite::Result<_>>()?;
        self.commit.raw_execute()?;
        Ok(Snapshot { revision, pages })
    }

    fn page(&mut self, read: &Read, revision: Revision, expired: &[LeaseId]) -> rusqlite::Result<Page> {
        let (mut rows, limit) = match read {
            Read::Key(key) => (self.get.query(params![key.as_str().as_bytes()])?, 1),
            Read::Range { range, limit } => {
                (self.range.query(params![range.start(), range.end()])?, Read::page_limit(*limit))
            }
        };
        let mut page = Page { items: Vec::new(), more: false, revision };
        while let Some(row) = rows.next()? {
            let lease = row.get::<_, Option<i64>>(3)?.map(LeaseId);
            if lease.is_some_and(|lease| expired.contains(&lease)) {
                continue;
            }
            if page.items.len() == limit {
                page.more = true;
                break;
            }
            let value = Bytes::copy_from_slice(row.get_ref(1)?.as_blob()?);
            let revision = Revision(row.get::<_, i64>(2)?.cast_unsigned());
            page.items.push(Item { key: key_of(row)?, value, revision, lease });
        }
        Ok(page)
    }
}
