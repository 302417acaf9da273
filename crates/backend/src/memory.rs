//! The in-memory backend: the reference implementation of the contract, used by tests and benches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::leases::{LeaseTable, new_lease};
use crate::watch_log::WatchLog;
use crate::{
    Backend, Change, Error, Event, Item, Key, KeyRange, Lease, LeaseId, Page, Read, Result, Revision,
    Snapshot, Transaction, Watch, Write,
};

/// A store without persistence: for tests, and as the simplest implementation of the contract.
#[derive(Debug, Clone)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    log: WatchLog,
}

#[derive(Debug, Default)]
struct Store {
    items: BTreeMap<Vec<u8>, Item>,
    leases: LeaseTable,
    revision: Revision,
}

impl Default for MemoryBackend {
    fn default() -> Self {
        let shared = Shared { store: Mutex::default(), log: WatchLog::starting_at(Revision(0)) };
        Self { shared: Arc::new(shared) }
    }
}

impl Shared {
    /// Locks the store and removes expired leases first.
    fn lock(&self) -> MutexGuard<'_, Store> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        for lease in store.leases.expired(Instant::now()) {
            self.end_lease(&mut store, lease);
        }
        store
    }

    fn end_lease(&self, store: &mut Store, lease: LeaseId) -> bool {
        let held = store.items.values().filter(|item| item.lease == Some(lease));
        let keys: Vec<Key> = held.map(|item| item.key.clone()).collect();
        self.delete(store, keys);
        store.leases.end(lease)
    }

    fn delete(&self, store: &mut Store, keys: Vec<Key>) {
        if keys.is_empty() {
            return;
        }
        store.revision.0 += 1;
        let revision = store.revision;
        for key in &keys {
            store.items.remove(key.as_str().as_bytes());
        }
        self.log.publish(keys.into_iter().map(|key| Event { revision, change: Change::Delete(key) }));
    }
}

impl Store {
    fn answer(&self, read: &Read) -> Page {
        let (items, more) = match read {
            Read::Key(key) => (self.get(key).cloned().into_iter().collect(), false),
            Read::Range { range, limit } => {
                let limit = Read::page_limit(*limit);
                let mut items: Vec<Item> = self.within(range).take(limit + 1).cloned().collect();
                let more = items.len() > limit;
                items.truncate(limit);
                (items, more)
            }
        };
        Page { items, more, revision: self.revision }
    }

    fn get(&self, key: &Key) -> Option<&Item> {
        self.items.get(key.as_str().as_bytes())
    }

    fn within<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Item> {
        let end = range.end().max(range.start());
        self.items
            .range::<[u8], _>((Bound::Included(range.start()), Bound::Excluded(end)))
            .map(|(_, item)| item)
    }

    fn apply(&mut self, write: Write, revision: Revision) -> Option<Event> {
        let change = match write {
            Write::Put { key, value, lease } => {
                let item = Item { key: key.clone(), value, revision, lease };
                self.items.insert(key.as_str().into(), item.clone());
                Change::Put(item)
            }
            Write::Delete { key } => Change::Delete(self.items.remove(key.as_str().as_bytes())?.key),
        };
        Some(Event { revision, change })
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn describe(&self) -> String {
        "memory".into()
    }

    async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        Read::check(reads)?;
        let store = self.shared.lock();
        let pages = reads.iter().map(|read| store.answer(read)).collect();
        Ok(Snapshot { revision: store.revision, pages })
    }

    async fn transact(&self, transaction: Transaction) -> Result<Revision> {
        transaction.check()?;
        let mut store = self.shared.lock();
        for compare in transaction.compares() {
            if !compare.expect.holds(store.get(&compare.key).map(|item| item.revision)) {
                return Err(Error::Conflict { key: compare.key.clone() });
            }
        }
        let now = Instant::now();
        for write in transaction.writes() {
            if let Write::Put { lease: Some(lease), .. } = write
                && !store.leases.is_live(*lease, now)
            {
                return Err(Error::LeaseNotFound(*lease));
            }
        }
        let revision = Revision(store.revision.0 + 1);
        let writes = transaction.writes().iter().cloned();
        let events: Vec<Event> = writes.filter_map(|write| store.apply(write, revision)).collect();
        if !events.is_empty() {
            store.revision = revision;
            self.shared.log.publish(events);
        }
        Ok(store.revision)
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        let mut store = self.shared.lock();
        let keys: Vec<Key> = store.within(range).map(|item| item.key.clone()).collect();
        let count = keys.len() as u64;
        self.shared.delete(&mut store, keys);
        Ok(count)
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease> {
        let lease = new_lease(ttl);
        self.shared.lock().leases.start(lease, Instant::now());
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            loop {
                let Some(shared) = shared.upgrade() else { return };
                let Some(deadline) = shared.lock().leases.next_deadline() else { return };
                drop(shared);
                tokio::time::sleep_until(deadline.into()).await;
            }
        });
        Ok(lease)
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        self.shared.lock().leases.keep_alive(lease, Instant::now())
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        let mut store = self.shared.lock();
        match self.shared.end_lease(&mut store, lease) {
            true => Ok(()),
            false => Err(Error::LeaseNotFound(lease)),
        }
    }

    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch> {
        Ok(self.shared.log.watch(range.clone(), after))
    }
}
