use std::fmt::Debug;

use async_trait::async_trait;
use refit_backend::{Error as StoreError, Item, Key, Revision, SharedBackend, Transaction};

use crate::StorageFormat;

/// A value and when it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T> {
    /// What is stored.
    pub value: T,
    /// Since when.
    pub revision: Revision,
}

/// Some values in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// The values.
    pub items: Vec<Found<T>>,
    /// Behind which name to go on, if there may be more.
    pub next: Option<String>,
}

/// Why a value could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// What is stored cannot be understood.
    #[error("what is stored at {key} cannot be read: {reason}")]
    Garbled {
        /// Where.
        key: String,
        /// Why.
        reason: String,
    },
    /// Creating something that exists.
    #[error("{name:?} exists already")]
    AlreadyExists {
        /// Its name.
        name: String,
    },
    /// Changing something that does not exist.
    #[error("{name:?} does not exist")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// Somebody else wrote since the revision that the change was made from.
    #[error("{name:?} was changed by someone else meanwhile; get it again and repeat the change")]
    Conflict {
        /// Its name.
        name: String,
    },
    /// What is there forbids the change.
    #[error("{0}")]
    Refused(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What else is written in the transaction of a change: all of it happens, or nothing.
pub type Alongside<'a> = &'a [(Key, Vec<u8>)];

/// Adds what is written besides to the transaction of a change.
pub(crate) fn with(transaction: Transaction, alongside: Alongside<'_>) -> Transaction {
    transaction.put_all(alongside)
}

/// Named values of one type, whatever the forms in which they are stored.
#[async_trait]
pub trait ResourceStore<T>: Debug + Send + Sync {
    /// The value of that name.
    async fn get(&self, name: &str) -> Result<Option<Found<T>>, ServiceError>;

    /// Up to `limit` values behind the name `after`.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<T>, ServiceError>;

    /// Stores a value under a name that must be free.
    async fn create(&self, name: &str, value: &T, alongside: Alongside<'_>)
    -> Result<Revision, ServiceError>;

    /// Replaces a value that must exist and, if `expected` is given, be of that revision.
    async fn update(
        &self,
        name: &str,
        value: &T,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError>;

    /// Stores a value, whether the name is free or not.
    async fn upsert(&self, name: &str, value: &T, alongside: Alongside<'_>)
    -> Result<Revision, ServiceError>;

    /// Deletes a value that must exist and, if `expected` is given, be of that revision.
    async fn delete(
        &self,
        name: &str,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError>;
}

/// Values that are stored in one form.
#[derive(Debug)]
pub struct Service<T> {
    backend: SharedBackend,
    form: StorageFormat<T>,
}

impl<T> Service<T> {
    /// The values of that form in that store.
    pub fn new(backend: SharedBackend, form: StorageFormat<T>) -> Self {
        Self { backend, form }
    }
}

impl<T> StorageFormat<T> {
    pub(crate) fn found(&self, item: &Item) -> Result<Found<T>, ServiceError> {
        let value = (self.decode)(self.name(&item.key), &item.value)
            .map_err(|reason| ServiceError::Garbled { key: item.key.to_string(), reason })?;
        Ok(Found { value, revision: item.revision })
    }
}

/// Gives the store's words on a key the name that the caller used.
fn renamed(error: StoreError, name: &str) -> ServiceError {
    let name = name.to_owned();
    match error {
        StoreError::AlreadyExists { .. } => ServiceError::AlreadyExists { name },
        StoreError::NotFound { .. } => ServiceError::NotFound { name },
        StoreError::Conflict { .. } => ServiceError::Conflict { name },
        other => ServiceError::Store(other),
    }
}

impl<T: Debug + Send + Sync> Service<T> {
    /// A compare that failed is an absence if the key is absent now, or else a conflict.
    async fn explain(&self, name: &str, error: StoreError) -> ServiceError {
        match (&error, self.form.key(name)) {
            (StoreError::Conflict { .. }, Ok(key)) => match self.backend.get(&key).await {
                Ok(None) => ServiceError::NotFound { name: name.to_owned() },
                _ => renamed(error, name),
            },
            _ => renamed(error, name),
        }
    }
}

#[async_trait]
impl<T: Debug + Send + Sync> ResourceStore<T> for Service<T> {
    async fn get(&self, name: &str) -> Result<Option<Found<T>>, ServiceError> {
        let item = self.backend.get(&self.form.key(name)?).await?;
        item.as_ref().map(|item| self.form.found(item)).transpose()
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<T>, ServiceError> {
        let page = self.backend.range(&self.form.range_after(after)?, limit).await?;
        let last = page.items.last().filter(|_| page.more);
        let next = last.map(|item| self.form.name(&item.key).to_owned());
        let items = page.items.iter().map(|item| self.form.found(item)).collect::<Result<_, _>>()?;
        Ok(Listed { items, next })
    }

    async fn create(
        &self,
        name: &str,
        value: &T,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        let key = self.form.key(name)?;
        let transaction = Transaction::new().expect_absent(&key).put(&key, (self.form.encode)(value));
        match self.backend.transact(with(transaction, alongside)).await {
            Err(StoreError::Conflict { .. }) => Err(ServiceError::AlreadyExists { name: name.to_owned() }),
            other => Ok(other?),
        }
    }

    async fn update(
        &self,
        name: &str,
        value: &T,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        let key = self.form.key(name)?;
        let transaction = existing(&key, expected).put(&key, (self.form.encode)(value));
        match self.backend.transact(with(transaction, alongside)).await {
            Ok(revision) => Ok(revision),
            Err(error) => Err(self.explain(name, error).await),
        }
    }

    async fn upsert(
        &self,
        name: &str,
        value: &T,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        let transaction = Transaction::new().put(&self.form.key(name)?, (self.form.encode)(value));
        Ok(self.backend.transact(with(transaction, alongside)).await?)
    }

    async fn delete(
        &self,
        name: &str,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ServiceError> {
        let key = self.form.key(name)?;
        match self.backend.transact(with(existing(&key, expected).delete(&key), alongside)).await {
            Ok(revision) => Ok(revision),
            Err(error) => Err(self.explain(name, error).await),
        }
    }
}

/// A transaction on a key that must exist and, if `expected` is given, be of that revision.
fn existing(key: &Key, expected: Option<Revision>) -> Transaction {
    match expected {
        Some(revision) => Transaction::new().expect_revision(key, revision),
        None => Transaction::new().expect_present(key),
    }
}
