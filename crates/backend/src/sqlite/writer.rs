//! The writer thread: the only one that changes the database. It commits in groups, expires leases and publishes
//! events to the watch log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::batch::{Batch, Operation, Statements};
use super::failure::failed;
use super::queue::{CloseOnDrop, Queue};
use super::shared_leases::SharedLeases;
use crate::watch_log::WatchLog;
use crate::{Error, LeaseId, Result, Revision};

/// KiB of queued writes before callers have to wait: several batches, and more than ten of the largest transactions.
const QUEUE_KIB: u32 = 16 * 1024;

/// KiB of writes that are committed together. More would make the first of them wait for the last
/// without saving much: one sync is already shared by a thousand small writes.
const BATCH_KIB: u32 = 4 * 1024;

/// How long expired items may stay on a disk that is full before their deletion is tried again.
const RETRY_EXPIRY: Duration = Duration::from_secs(1);

/// The only thread that changes the database. Everything queued during one commit forms the next batch and shares its
/// sync: the busier the store, the cheaper a write, and no write waits for a timer.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue<Job>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// What group commit has done so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) commits: AtomicU64,
    pub(super) writes: AtomicU64,
}

#[derive(Debug)]
struct Job {
    operation: Operation,
    answer: oneshot::Sender<Result<u64>>,
}

impl Writer {
    /// Starts on a store that stands at `revision`.
    pub(super) fn start(
        connection: Connection,
        store: String,
        revision: Revision,
        leases: Arc<SharedLeases>,
        log: Arc<WatchLog>,
    ) -> Result<Self> {
        let queue = Arc::new(Queue::new(QUEUE_KIB));
        let counts = Arc::new(Counts::default());
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (jobs, counted, name) = (queue.clone(), counts.clone(), store.clone());
        let run = move || {
            let _closed = CloseOnDrop(&jobs);
            match Statements::prepare(&connection) {
                Err(error) => drop(ready.send(Err(failed(&store, &error)))),
                Ok(statements) => {
                    drop(ready.send(Ok(())));
                    let (connection, counts, queue) = (&connection, &*counted, &*jobs);
                    let retry_at = None;
                    WriterLoop {
                        connection,
                        statements,
                        store,
                        revision,
                        leases,
                        log,
                        counts,
                        queue,
                        retry_at,
                    }
                    .run();
                }
            }
        };
        let cannot_start = |reason: String| Error::Failed { store: name, reason };
        let thread = thread::Builder::new().name("sqlite-writer".into()).spawn(run);
        let thread = thread.map_err(|error| cannot_start(format!("no thread can be started: {error}")))?;
        let writer = Self { queue, counts, thread: Some(thread) };
        is_ready.recv().unwrap_or(Err(Error::Closed))?;
        Ok(writer)
    }

    /// Queues an operation and waits until it is durable.
    pub(super) async fn ask(&self, operation: Operation, bytes: usize) -> Result<u64> {
        let (answer, answered) = oneshot::channel();
        let cost = 1 + u32::try_from(bytes / 1024).unwrap_or(u32::MAX - 1);
        self.queue.push(cost.min(QUEUE_KIB), Job { operation, answer }).await?;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The state of the writer thread.
struct WriterLoop<'c> {
    connection: &'c Connection,
    statements: Statements<'c>,
    store: String,
    revision: Revision,
    leases: Arc<SharedLeases>,
    log: Arc<WatchLog>,
    counts: &'c Counts,
    queue: &'c Queue<Job>,
    retry_at: Option<Instant>,
}

impl WriterLoop<'_> {
    fn run(mut self) {
        let mut jobs = Vec::new();
        loop {
            let deadline = self.leases.lock().next_deadline();
            let wake_at =
                deadline.map(|deadline| self.retry_at.map_or(deadline, |retry| retry.max(deadline)));
            if !self.queue.take(&mut jobs, BATCH_KIB, wake_at) {
                return;
            }
            // After the jobs were taken: a lease that had expired when a job was queued is gone before it runs.
            let (now, expired) = self.leases.expired();
            if jobs.is_empty() && expired.is_empty() {
                continue;
            }
            match self.commit(&jobs, now, &expired) {
                Ok(results) => {
                    self.retry_at = None;
                    for (job, result) in jobs.drain(..).zip(results) {
                        drop(job.answer.send(result));
                    }
                }
                Err(error) => {
                    self.roll_back();
                    self.retry_at = Some(Instant::now() + RETRY_EXPIRY);
                    let error = failed(&self.store, &error);
                    tracing::error!(writes = jobs.len(), "{error}");
                    for job in jobs.drain(..) {
                        drop(job.answer.send(Err(error.clone())));
                    }
                }
            }
        }
    }

    /// Applies everything in one commit, then publishes events and lease changes.
    fn commit(
        &mut self,
        jobs: &[Job],
        now: Instant,
        expired: &[LeaseId],
    ) -> rusqlite::Result<Vec<Result<u64>>> {
        let mut batch = Batch::begin(&mut self.statements, &self.leases, now, self.revision)?;
        for lease in expired {
            batch.end_lease(*lease)?;
        }
        let results =
            jobs.iter().map(|job| batch.apply(&job.operation)).collect::<rusqlite::Result<Vec<_>>>()?;
        self.revision = batch.commit()?;
        let Batch { events, started, ended, .. } = batch;
        if !started.is_empty() || !ended.is_empty() {
            let mut table = self.leases.lock();
            let now = Instant::now();
            started.into_iter().for_each(|lease| table.start(lease, now));
            for lease in ended {
                table.end(lease);
            }
        }
        self.log.publish(events);
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.counts.writes.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        Ok(results)
    }

    /// Rolls the failed batch back; after some errors SQLite has done so itself.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!("{}", failed(&self.store, &error));
        }
    }
}
