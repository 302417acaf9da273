//! The data model of reads: items, leases, pages and snapshots. Shared by all backends.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use refit_types::Revision;

use crate::limits::{MAX_PAGE_ITEMS, MAX_TRANSACTION_KEYS};
use crate::{Error, Key, KeyRange, Result};

/// Names a lease within its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A lease as granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What to put on items and to keep alive.
    pub id: LeaseId,
    /// How long it lasts without being kept alive; at least what was asked for.
    pub ttl: Duration,
}

/// What is stored at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where.
    pub key: Key,
    /// What.
    pub value: Bytes,
    /// When it was last written.
    pub revision: Revision,
    /// The lease that it vanishes with.
    pub lease: Option<LeaseId>,
}

/// One question of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// One key.
    Key(Key),
    /// The first `limit` items of a range.
    Range {
        /// The keys asked for.
        range: KeyRange,
        /// At most this many, and at most [`crate::MAX_PAGE_ITEMS`].
        limit: usize,
    },
}

impl Read {
    /// What no backend answers: too many questions at once.
    pub(crate) fn check(reads: &[Read]) -> Result<()> {
        if reads.len() > MAX_TRANSACTION_KEYS {
            return Err(Error::TooLarge(format!(
                "a snapshot of {} reads is too large: at most {MAX_TRANSACTION_KEYS} are allowed",
                reads.len()
            )));
        }
        Ok(())
    }

    /// A page limit within the bounds that every backend keeps.
    pub(crate) fn page_limit(limit: usize) -> usize {
        limit.clamp(1, MAX_PAGE_ITEMS)
    }
}

/// The items that answer one [`Read`], in key order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// What was found.
    pub items: Vec<Item>,
    /// Whether the range holds more behind the last item.
    pub more: bool,
    /// The moment at which the store was read: watch after it to miss nothing.
    pub revision: Revision,
}

/// Answers to several reads, all of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// That moment.
    pub revision: Revision,
    /// One page for each read, in the order asked.
    pub pages: Vec<Page>,
}

impl Snapshot {
    /// Moves the answer to the `index`-th read out; an empty page if there was no such read.
    pub fn take(&mut self, index: usize) -> Page {
        self.pages.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// The item that answers the `index`-th read, which asked for one key.
    pub fn item(&self, index: usize) -> Option<&Item> {
        self.pages.get(index).and_then(|page| page.items.first())
    }
}
