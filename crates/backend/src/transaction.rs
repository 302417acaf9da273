//! Transactions of the contract: compares and writes, with the size limits that every backend enforces.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::limits::{MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEYS};
use crate::{Error, Item, Key, LeaseId, Result, Revision};

/// What must be true of a key for a transaction to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// There is no such key.
    Absent,
    /// There is one, whatever it holds.
    Present,
    /// It was last written at exactly this revision.
    Revision(Revision),
}

impl Expect {
    /// What to expect of a key so that it is as it was when `item` was read.
    pub fn unchanged(item: Option<&Item>) -> Self {
        item.map_or(Self::Absent, |item| Self::Revision(item.revision))
    }

    /// Whether a key last written at `found` is as expected.
    pub(crate) fn holds(self, found: Option<Revision>) -> bool {
        match self {
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::Revision(revision) => found == Some(revision),
        }
    }
}

/// One condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key looked at.
    pub key: Key,
    /// What must be true of it.
    pub expect: Expect,
}

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Store a value; without a lease the item stays until it is deleted.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// The lease that the item vanishes with.
        lease: Option<LeaseId>,
    },
    /// Remove a key; nothing happens if it is absent.
    Delete {
        /// Where.
        key: Key,
    },
}

impl Write {
    /// The key that is written.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.as_str().len() + value.len(),
            Self::Delete { key } => key.as_str().len(),
        }
    }
}

/// Conditions and changes that happen together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    compares: Vec<Compare>,
    writes: Vec<Write>,
}

impl Transaction {
    /// One that asks for nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    pub fn expect(mut self, key: &Key, expect: Expect) -> Self {
        self.compares.push(Compare { key: key.clone(), expect });
        self
    }

    /// Adds the condition that there is no such key.
    pub fn expect_absent(self, key: &Key) -> Self {
        self.expect(key, Expect::Absent)
    }

    /// Adds the condition that there is such a key.
    pub fn expect_present(self, key: &Key) -> Self {
        self.expect(key, Expect::Present)
    }

    /// Adds the condition that the key was last written at `revision`.
    pub fn expect_revision(self, key: &Key, revision: Revision) -> Self {
        self.expect(key, Expect::Revision(revision))
    }

    /// Adds a write.
    pub fn put(mut self, key: &Key, value: impl Into<Bytes>) -> Self {
        self.writes.push(Write::Put { key: key.clone(), value: value.into(), lease: None });
        self
    }

    /// Adds writes that go along with the others, such as the event of a change.
    pub fn put_all(self, entries: &[(Key, Vec<u8>)]) -> Self {
        entries.iter().fold(self, |transaction, (key, value)| transaction.put(key, value.clone()))
    }

    /// Adds a write of an item that vanishes with the lease.
    pub fn put_leased(mut self, key: &Key, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        self.writes.push(Write::Put { key: key.clone(), value: value.into(), lease: Some(lease) });
        self
    }

    /// Adds a removal.
    pub fn delete(mut self, key: &Key) -> Self {
        self.writes.push(Write::Delete { key: key.clone() });
        self
    }

    /// The conditions, in the order they were added.
    pub fn compares(&self) -> &[Compare] {
        &self.compares
    }

    /// The changes, in the order they were added.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Distinct keys compared or written.
    pub fn key_count(&self) -> usize {
        self.keys().collect::<BTreeSet<_>>().len()
    }

    /// Bytes of keys and values, as counted against the limit.
    pub fn byte_count(&self) -> usize {
        let compared: usize = self.compares.iter().map(|compare| compare.key.as_str().len()).sum();
        compared + self.writes.iter().map(Write::bytes).sum::<usize>()
    }

    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.compares.iter().map(|compare| &compare.key).chain(self.writes.iter().map(Write::key))
    }

    /// Rejects what any backend would reject, so that all of them behave alike.
    pub(crate) fn check(&self) -> Result<()> {
        let keys = self.key_count();
        if keys > MAX_TRANSACTION_KEYS {
            return Err(Error::TooLarge(format!(
                "a transaction on {keys} keys is too large: at most {MAX_TRANSACTION_KEYS} are allowed"
            )));
        }
        let bytes = self.byte_count();
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(Error::TooLarge(format!(
                "a transaction of {bytes} bytes is too large: at most {MAX_TRANSACTION_BYTES} are allowed"
            )));
        }
        refuse_repeated(self.writes.iter().map(Write::key), "written")?;
        refuse_repeated(self.compares.iter().map(|compare| &compare.key), "compared")
    }
}

fn refuse_repeated<'a>(keys: impl Iterator<Item = &'a Key>, how: &str) -> Result<()> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if !seen.insert(key) {
            return Err(Error::Invalid(format!("{key} is {how} twice in one transaction")));
        }
    }
    Ok(())
}
