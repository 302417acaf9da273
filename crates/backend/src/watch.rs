//! The watch of the contract: a stream of events, in batches of whole revisions. Backends supply the stream.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;

use futures::{Stream, StreamExt};

use crate::{Error, Item, Key, Result, Revision};

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was written.
    Put(Item),
    /// It was deleted, or vanished with its lease.
    Delete(Key),
}

/// One change and when it happened. Changes of one transaction share their revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub revision: Revision,
    /// What.
    pub change: Change,
}

impl Event {
    /// The key that changed.
    pub fn key(&self) -> &Key {
        match &self.change {
            Change::Put(item) => &item.key,
            Change::Delete(key) => key,
        }
    }
}

/// Every change in a range, in the order of revisions, until it is dropped or reports that events were lost.
pub struct Watch {
    batches: Pin<Box<dyn Stream<Item = Result<VecDeque<Event>>> + Send>>,
    /// What is left of the last batch.
    ready: VecDeque<Event>,
}

impl Watch {
    /// Each batch holds whole revisions only.
    pub(crate) fn new(batches: impl Stream<Item = Result<VecDeque<Event>>> + Send + 'static) -> Self {
        Self { batches: Box::pin(batches), ready: VecDeque::new() }
    }

    /// Waits for the next event. After an error the watch is over.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            match self.ready.pop_front() {
                Some(event) => return Ok(event),
                None => self.ready = self.batch().await?,
            }
        }
    }

    /// Waits for events and returns all that are available. They are whole revisions: a reader that has applied them
    /// is up to date as of the last one. After an error the watch is over.
    pub async fn next_batch(&mut self) -> Result<Vec<Event>> {
        while self.ready.is_empty() {
            self.ready = self.batch().await?;
        }
        Ok(std::mem::take(&mut self.ready).into())
    }

    async fn batch(&mut self) -> Result<VecDeque<Event>> {
        self.batches.next().await.unwrap_or(Err(Error::Closed))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
