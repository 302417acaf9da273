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

/// Every change in a range, in the order of revisions, until it is dropped or told that it lost some.
pub struct Watch {
    events: Pin<Box<dyn Stream<Item = Result<Event>> + Send>>,
}

impl Watch {
    pub(crate) fn new(events: impl Stream<Item = Result<Event>> + Send + 'static) -> Self {
        Self { events: Box::pin(events) }
    }

    /// Waits for the next event. After an error the watch is over.
    pub async fn next(&mut self) -> Result<Event> {
        self.events.next().await.unwrap_or(Err(Error::Closed))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
