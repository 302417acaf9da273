//! A bounded queue from async callers to a blocking thread, used by the writer and the readers.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::{Error, Result};

/// Passes jobs from async callers to a blocking thread. Callers wait asynchronously while it is full; the thread takes
/// all queued jobs under one lock, where a channel would take them one by one.
#[derive(Debug)]
pub(super) struct Queue<J> {
    waiting: Mutex<Waiting<J>>,
    filled: Condvar,
    room: Semaphore,
}

#[derive(Debug)]
struct Waiting<J> {
    jobs: VecDeque<(u32, J)>,
    idle_threads: usize,
    closed: bool,
}

impl<J> Queue<J> {
    /// A queue that holds jobs up to this much cost, in whatever unit its callers count.
    pub(super) fn new(capacity: u32) -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), idle_threads: 0, closed: false };
        Self { waiting: Mutex::new(waiting), filled: Condvar::new(), room: Semaphore::new(capacity as usize) }
    }

    /// Adds a job as soon as there is room. `cost` must not exceed the capacity.
    pub(super) async fn push(&self, cost: u32, job: J) -> Result<()> {
        let room = self.room.acquire_many(cost).await.map_err(|_| Error::Closed)?;
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Error::Closed);
        }
        room.forget();
        waiting.jobs.push_back((cost, job));
        let wake = waiting.idle_threads > 0;
        drop(waiting);
        if wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Moves queued jobs of up to `most` cost into `batch`, and at least one: waits for it, but not past
    /// `deadline`. False when the queue is closed and empty.
    pub(super) fn take(&self, batch: &mut Vec<J>, most: u32, deadline: Option<Instant>) -> bool {
        let mut waiting = self.lock();
        while waiting.jobs.is_empty() {
            if waiting.closed {
                return false;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return true;
            }
            waiting.idle_threads += 1;
            waiting = match left {
                Some(left) => {
                    self.filled.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
            waiting.idle_threads -= 1;
        }
        let mut taken = 0;
        while let Some((cost, _)) = waiting.jobs.front() {
            if taken > 0 && taken + cost > most {
                break;
            }
            taken += cost;
            batch.extend(waiting.jobs.pop_front().map(|(_, job)| job));
        }
        drop(waiting);
        self.room.add_permits(taken as usize);
        true
    }

    /// Takes no further jobs; those queued are still done.
    pub(super) fn close(&self) {
        self.room.close();
        self.lock().closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<J>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue and drops its jobs when the last thread ends, also by a panic, so that callers get an error
/// instead of waiting forever.
pub(super) struct CloseOnDrop<'a, J>(pub(super) &'a Queue<J>);

impl<J> Drop for CloseOnDrop<'_, J> {
    fn drop(&mut self) {
        self.0.close();
        self.0.lock().jobs.clear();
    }
}
