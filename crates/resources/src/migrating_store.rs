//! The store of a kind that older servers store in one format and newer ones in another, while both run.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use refit_backend::{
    Backoff, Error as StoreError, Expect, Item, Key, Page, Read, Revision, SharedBackend, Transaction,
};

use crate::{Alongside, Found, Listed, Operation, ResourceError, ResourceStore, StorageFormat};

/// How long a write is tried because somebody else wrote the same name in between, and how soon.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Values that older servers store in one format and newer ones in another, while both run.
///
/// Writes and deletes touch both keys in one transaction. Of the two, the one written last holds; when
/// they were written together, the new one. An old key that is absent was deleted, unless the old format
/// was retired. So neither side misses what the other does.
#[derive(Debug)]
pub struct MigratingStore<T> {
    backend: SharedBackend,
    previous: StorageFormat<T>,
    current: StorageFormat<T>,
    retired: Key,
}

/// Which of the two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// That of the older release.
    Previous,
    /// That of the newer one.
    Current,
}

/// The item that holds, of the two that may be stored under one name: for stores and migrations alike.
pub fn winner<'a>(
    current: Option<&'a Item>,
    previous: Option<&'a Item>,
    retired: bool,
) -> Option<(&'a Item, Side)> {
    match (current, previous) {
        (current, _) if retired => current.map(|item| (item, Side::Current)),
        (Some(current), Some(previous)) if previous.revision > current.revision => {
            Some((previous, Side::Previous))
        }
        (Some(current), Some(_)) => Some((current, Side::Current)),
        (None, Some(previous)) => Some((previous, Side::Previous)),
        (_, None) => None,
    }
}

/// Where a migration notes that a format is no longer in use.
pub fn retired_key(previous: &Key) -> Result<Key, StoreError> {
    Key::new(format!("/migrations/retired{previous}"))
}

/// Refuses an operation that needs something else than what is stored.
fn check<T>(operation: Operation<'_, T>, name: &str, found: Option<Revision>) -> Result<(), ResourceError> {
    let name = || name.to_owned();
    match (operation, found) {
        (Operation::Create(_), Some(_)) => Err(ResourceError::AlreadyExists { name: name() }),
        (Operation::Update(..) | Operation::Delete(_), None) => Err(ResourceError::NotFound { name: name() }),
        (Operation::Update(_, Some(expected)) | Operation::Delete(Some(expected)), Some(found))
            if expected != found =>
        {
            Err(ResourceError::Conflict { name: name() })
        }
        _ => Ok(()),
    }
}

/// One name as it is stored at one moment.
struct Stored {
    current: Option<Item>,
    previous: Option<Item>,
    retired: Option<Item>,
}

impl Stored {
    fn winner(&self) -> Option<(&Item, Side)> {
        winner(self.current.as_ref(), self.previous.as_ref(), self.retired.is_some())
    }
}

impl<T: Debug + Send + Sync> MigratingStore<T> {
    /// The values that `previous` and `current` hold together.
    pub fn new(
        backend: SharedBackend,
        previous: StorageFormat<T>,
        current: StorageFormat<T>,
    ) -> Result<Self, StoreError> {
        let retired = retired_key(&previous.prefix)?;
        Ok(Self { backend, previous, current, retired })
    }

    fn format(&self, side: Side) -> &StorageFormat<T> {
        match side {
            Side::Previous => &self.previous,
            Side::Current => &self.current,
        }
    }

    async fn stored(&self, name: &str) -> Result<Stored, ResourceError> {
        let keys = [self.current.key(name)?, self.previous.key(name)?, self.retired.clone()];
        let mut snapshot = self.backend.read(&keys.map(Read::Key)).await?;
        let mut item = |index| snapshot.take(index).items.pop();
        Ok(Stored { current: item(0), previous: item(1), retired: item(2) })
    }
}

#[async_trait]
impl<T: Debug + Send + Sync> ResourceStore<T> for MigratingStore<T> {
    async fn get(&self, name: &str) -> Result<Option<Found<T>>, ResourceError> {
        let stored = self.stored(name).await?;
        stored.winner().map(|(item, side)| self.format(side).found(item)).transpose()
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<T>, ResourceError> {
        let limit = limit.clamp(1, refit_backend::MAX_PAGE_ITEMS);
        let mut items = Vec::new();
        let mut cursor = after.map(str::to_owned);
        loop {
            let range = |format: &StorageFormat<T>| format.range_after(cursor.as_deref());
            let mut snapshot = self
                .backend
                .read(&[
                    Read::Range { range: range(&self.current)?, limit },
                    Read::Range { range: range(&self.previous)?, limit },
                    Read::Key(self.retired.clone()),
                ])
                .await?;
            let retired = snapshot.item(2).is_some();
            let current = Names::of(&self.current, snapshot.take(0));
            let previous = Names::of(&self.previous, snapshot.take(1));
            let known_to = earliest(current.ends_at.clone(), previous.ends_at.clone());
            for (name, (current, previous)) in merged(current, previous) {
                if known_to.as_ref().is_some_and(|end| &name > end) {
                    break;
                }
                if let Some((item, side)) = winner(current.as_ref(), previous.as_ref(), retired) {
                    if items.len() == limit {
                        return Ok(Listed { items, next: cursor });
                    }
                    items.push(self.format(side).found(item)?);
                }
                cursor = Some(name);
            }
            if known_to.is_none() {
                return Ok(Listed { items, next: None });
            }
            cursor = known_to;
        }
    }

    /// Writes both keys, or deletes them, if they are as they were read.
    async fn write(
        &self,
        name: &str,
        operation: Operation<'_, T>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        let value = operation.value();
        let (current, previous) = (self.current.key(name)?, self.previous.key(name)?);
        let put = |tx: Transaction, key: &Key, bytes: Option<Bytes>| match bytes {
            Some(bytes) => tx.put(key, bytes),
            None => tx.delete(key),
        };
        let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let stored = self.stored(name).await?;
            check(operation, name, stored.winner().map(|(item, _)| item.revision))?;
            let mut transaction = Transaction::new()
                .expect(&current, Expect::unchanged(stored.current.as_ref()))
                .expect(&previous, Expect::unchanged(stored.previous.as_ref()))
                .expect(&self.retired, Expect::unchanged(stored.retired.as_ref()));
            transaction = put(transaction, &current, value.map(self.current.encode));
            if stored.retired.is_none() {
                transaction = put(transaction, &previous, value.map(self.previous.encode));
            }
            match self.backend.transact(transaction.put_all(alongside)).await {
                Err(StoreError::Conflict { .. }) if backoff.pause().await => {}
                Err(StoreError::Conflict { .. }) => {
                    return Err(ResourceError::Conflict { name: name.to_owned() });
                }
                other => return Ok(other?),
            }
        }
    }
}

/// A page of one format by name, and up to which name it is known if it was cut there.
struct Names {
    items: BTreeMap<String, Item>,
    ends_at: Option<String>,
}

impl Names {
    fn of<T>(format: &StorageFormat<T>, page: Page) -> Self {
        let named = |item: Item| (format.name(&item.key).to_owned(), item);
        let items: BTreeMap<String, Item> = page.items.into_iter().map(named).collect();
        let ends_at = items.keys().next_back().filter(|_| page.more).cloned();
        Self { items, ends_at }
    }
}

fn earliest(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Both pages in the order of names, with what each has under a name.
fn merged(current: Names, previous: Names) -> BTreeMap<String, (Option<Item>, Option<Item>)> {
    let mut all: BTreeMap<String, (Option<Item>, Option<Item>)> = BTreeMap::new();
    for (name, item) in current.items {
        all.entry(name).or_default().0 = Some(item);
    }
    for (name, item) in previous.items {
        all.entry(name).or_default().1 = Some(item);
    }
    all
}
