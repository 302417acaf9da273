//! Maps our keys and ranges to etcd's by the configured prefix, and etcd's items and events back. No I/O.

use bytes::Bytes;

use super::proto::mvccpb::{Event as EtcdEvent, KeyValue, event::EventType};
use crate::{Change, Error, Event, Item, Key, KeyRange, LeaseId, Result, Revision};

/// Our part of an etcd: keys have the prefix there and not here.
#[derive(Debug, Clone)]
pub(super) struct Keyspace {
    prefix: String,
    store: String,
}

/// The first key and the one past the last, as etcd knows them.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) start: Bytes,
    pub(super) end: Bytes,
}

impl Keyspace {
    pub(super) fn new(prefix: &str, store: &str) -> Self {
        Self { prefix: prefix.into(), store: store.into() }
    }

    pub(super) fn key(&self, key: &Key) -> Bytes {
        self.prefixed(key.as_str().as_bytes())
    }

    /// A key that every user of the keyspace may read and that is never written.
    pub(super) fn root(&self) -> Bytes {
        self.prefixed(b"/")
    }

    /// None for an empty range, which etcd would interpret differently.
    pub(super) fn span(&self, range: &KeyRange) -> Option<Span> {
        (!range.is_empty())
            .then(|| Span { start: self.prefixed(range.start()), end: self.prefixed(range.end()) })
    }

    pub(super) fn item(&self, found: KeyValue) -> Result<Item> {
        let lease = (found.lease != 0).then_some(LeaseId(found.lease));
        Ok(Item {
            key: self.unprefixed(&found.key)?,
            value: found.value,
            revision: revision(found.mod_revision),
            lease,
        })
    }

    pub(super) fn event(&self, event: EtcdEvent) -> Result<Event> {
        let kind = event.r#type();
        let found = event.kv.unwrap_or_default();
        let revision = revision(found.mod_revision);
        let change = match kind {
            EventType::Put => Change::Put(self.item(found)?),
            EventType::Delete => Change::Delete(self.unprefixed(&found.key)?),
        };
        Ok(Event { revision, change })
    }

    fn prefixed(&self, key: &[u8]) -> Bytes {
        [self.prefix.as_bytes(), key].concat().into()
    }

    fn unprefixed(&self, found: &[u8]) -> Result<Key> {
        let key = found.strip_prefix(self.prefix.as_bytes()).and_then(|key| str::from_utf8(key).ok());
        key.and_then(|key| Key::new(key).ok()).ok_or_else(|| Error::Failed {
            store: self.store.clone(),
            reason: format!("it holds \"{}\", which is not a key of ours; delete it", found.escape_ascii()),
        })
    }
}

pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}
