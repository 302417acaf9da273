//! The store of a kind that is stored in one format.

use std::fmt::Debug;

use async_trait::async_trait;
use refit_backend::{Error as StoreError, Key, Revision, SharedBackend, Transaction};

use crate::{Alongside, Found, Listed, Operation, ResourceError, ResourceStore, StorageFormat};

/// Values that are stored in one format.
#[derive(Debug)]
pub struct FormatStore<T> {
    backend: SharedBackend,
    format: StorageFormat<T>,
}

impl<T: Debug + Send + Sync> FormatStore<T> {
    /// The values of that format in that backend.
    pub fn new(backend: SharedBackend, format: StorageFormat<T>) -> Self {
        Self { backend, format }
    }

    /// What a compare that failed means to the caller. A change of a key that is absent now found it absent.
    async fn explain(&self, name: &str, operation: Operation<'_, T>, error: StoreError) -> ResourceError {
        let owned = || name.to_owned();
        match (operation, &error) {
            (Operation::Create(_), StoreError::Conflict { .. }) => {
                ResourceError::AlreadyExists { name: owned() }
            }
            (Operation::Update(..) | Operation::Delete(_), StoreError::Conflict { key }) => {
                match self.backend.get(key).await {
                    Ok(None) => ResourceError::NotFound { name: owned() },
                    _ => ResourceError::Conflict { name: owned() },
                }
            }
            _ => ResourceError::Store(error),
        }
    }
}

#[async_trait]
impl<T: Debug + Send + Sync> ResourceStore<T> for FormatStore<T> {
    async fn get(&self, name: &str) -> Result<Option<Found<T>>, ResourceError> {
        let item = self.backend.get(&self.format.key(name)?).await?;
        item.as_ref().map(|item| self.format.found(item)).transpose()
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<T>, ResourceError> {
        let page = self.backend.range(&self.format.range_after(after)?, limit).await?;
        let last = page.items.last().filter(|_| page.more);
        let next = last.map(|item| self.format.name(&item.key).to_owned());
        let items = page.items.iter().map(|item| self.format.found(item)).collect::<Result<_, _>>()?;
        Ok(Listed { items, next })
    }

    async fn write(
        &self,
        name: &str,
        operation: Operation<'_, T>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        let key = self.format.key(name)?;
        let transaction = match operation {
            Operation::Create(_) => Transaction::new().expect_absent(&key),
            Operation::Update(_, expected) | Operation::Delete(expected) => existing(&key, expected),
            Operation::Upsert(_) => Transaction::new(),
        };
        let transaction = match operation.value() {
            Some(value) => transaction.put(&key, (self.format.encode)(value)),
            None => transaction.delete(&key),
        };
        match self.backend.transact(transaction.put_all(alongside)).await {
            Ok(revision) => Ok(revision),
            Err(error) => Err(self.explain(name, operation, error).await),
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
