use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use refit_backend::{
    Backoff, Error as StoreError, Expect, Item, Key, Page, Read, Revision, SharedBackend, Transaction,
};

use crate::StorageFormat;
use crate::service::{Alongside, Found, Listed, ResourceStore, ServiceError, with};

/// How long a write is tried because somebody else wrote the same name in between, and how soon.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Values that older servers store in one form and newer ones in another, while both run.
///
/// Writes and deletes touch both keys in one transaction. Of the two, the one written last holds; when
/// they were written together, the new one. An old key that is absent was deleted, unless the old form
/// was retired. So neither side misses what the other does.
#[derive(Debug)]
pub struct MigratingService<T> {
    backend: SharedBackend,
    previous: StorageFormat<T>,
    current: StorageFormat<T>,
    retired: Key,
}

/// Which of the two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Previous,
    Current,
}

/// The item that holds, of the two that may be stored under one name.
pub(crate) fn winner<'a>(
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

/// Where it is noted that a form is no longer in use.
pub(crate) fn retired_key(previous: &Key) -> Result<Key, StoreError> {
    Key::new(format!("/migrations/retired{previous}"))
}

/// What a write needs to find.
#[derive(Debug, Clone, Copy)]
enum Must {
    Absent,
    Present(Option<Revision>),
    Anything,
}

impl Must {
    fn check(self, name: &str, found: Option<Revision>) -> Result<(), ServiceError> {
        let name = || name.to_owned();
        match (self, found) {
            (Self::Absent, Some(_)) => Err(ServiceError::AlreadyExists { name: name() }),
            (Self::Present(_), None) => Err(ServiceError::NotFound { name: name() }),
            (Self::Present(Some(expected)), Some(found)) if expected != found => {
                Err(ServiceError::Conflict { name: name() })
            }
            _ => Ok(()),
        }
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

impl<T: Debug + Send + Sync> MigratingService<T> {
    /// The values that `previous` and `current` hold together.
    pub fn new(
        backend: SharedBackend,
        previous: StorageFormat<T>,
        current: StorageFormat<T>,
    ) -> Result<Self, StoreError> {
        let retired = retired_key(&previous.prefix)?;
        Ok(Self { backend, previous, current, retired })
    }

    fn form(&self, side: Side) -> &StorageFormat<T> {
        match side {
            Side::Previous => &self.previous,
            Side::Current => &self.current,
        }
    }

    async fn stored(&self, name: &str) -> Result<Stored, ServiceError> {
        let keys = [self.current.key(name)?, self.previous.key(name)?, self.retired.clone()];
        let mut snapshot = self.backend.read(&keys.map(Read::Key)).await?;
        let mut item = |index| snapshot.take(index).items.pop();
        Ok(Stored { current: item(0), previous: item(1), retired: item(2) })
    }

    /// Writes both keys (or deletes them, without a value) if they are as they were read.
    async fn write(
        &self,
        name: &str,
        value: Option<&T>,
        must: Must,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        let (current, previous) = (self.current.key(name)?, self.previous.key(name)?);
        let put = |tx: Transaction, key: &Key, bytes: Option<Bytes>| match bytes {
            Some(bytes) => tx.put(key, bytes),
            None => tx.delete(key),
        };
        let mut patience = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let stored = self.stored(name).await?;
            must.check(name, stored.winner().map(|(item, _)| item.revision))?;
            let mut transaction = Transaction::new()
                .expect(&current, Expect::unchanged(stored.current.as_ref()))
                .expect(&previous, Expect::unchanged(stored.previous.as_ref()))
                .expect(&self.retired, Expect::unchanged(stored.retired.as_ref()));
            transaction = put(transaction, &current, value.map(self.current.encode));
            if stored.retired.is_none() {
                transaction = put(transaction, &previous, value.map(self.previous.encode));
            }
            match self.backend.transact(with(transaction, alongside)).await {
                Err(StoreError::Conflict { .. }) if patience.pause().await => {}
                Err(StoreError::Conflict { .. }) => {
                    return Err(ServiceError::Conflict { name: name.to_owned() });
                }
                other => return Ok(other?),
            }
        }
    }
}

#[async_trait]
impl<T: Debug + Send + Sync> ResourceStore<T> for MigratingService<T> {
    async fn get(&self, name: &str) -> Result<Option<Found<T>>, ServiceError> {
        let stored = self.stored(name).await?;
        stored.winner().map(|(item, side)| self.form(side).found(item)).transpose()
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<T>, ServiceError> {
        let limit = limit.clamp(1, refit_backend::MAX_PAGE_ITEMS);
        let mut items = Vec::new();
        let mut cursor = after.map(str::to_owned);
        loop {
            let range = |form: &StorageFormat<T>| form.range_after(cursor.as_deref());
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
                    items.push(self.form(side).found(item)?);
                }
                cursor = Some(name);
            }
            if known_to.is_none() {
                return Ok(Listed { items, next: None });
            }
            cursor = known_to;
        }
    }

    async fn create(
        &self,
        name: &str,
        value: &T,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        self.write(name, Some(value), Must::Absent, alongside).await
    }

    async fn update(
        &self,
        name: &str,
        value: &T,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        self.write(name, Some(value), Must::Present(expected), alongside).await
    }

    async fn upsert(
        &self,
        name: &str,
        value: &T,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        self.write(name, Some(value), Must::Anything, alongside).await
    }

    async fn delete(
        &self,
        name: &str,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        self.write(name, None, Must::Present(expected), alongside).await
    }
}

/// A page of one form by name, and up to which name it is known if it was cut there.
struct Names {
    items: BTreeMap<String, Item>,
    ends_at: Option<String>,
}

impl Names {
    fn of<T>(form: &StorageFormat<T>, page: Page) -> Self {
        let named = |item: Item| (form.name(&item.key).to_owned(), item);
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
