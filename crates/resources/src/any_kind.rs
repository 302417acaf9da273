//! The store of one kind as a store of resources, so that one path serves every kind.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use refit_backend::Revision;
use refit_types::{Resource, ResourceKind};

use crate::{Alongside, Found, Listed, Operation, ResourceError, ResourceStore, SharedStore};

/// A store that holds values of the type `T` only.
#[derive(Debug)]
struct AnyKind<T, S> {
    store: S,
    holds: PhantomData<fn() -> T>,
}

/// The same store, for whoever works on resources of any kind.
pub fn any_kind<T: ResourceKind>(store: impl ResourceStore<T> + 'static) -> SharedStore {
    Arc::new(AnyKind { store, holds: PhantomData::<fn() -> T> })
}

fn as_resource<T: Into<Resource>>(found: Found<T>) -> Found<Resource> {
    Found { value: found.value.into(), revision: found.revision }
}

fn typed<T: ResourceKind>(resource: &Resource) -> Result<T, ResourceError> {
    T::try_from(resource.clone())
        .map_err(|found| ResourceError::Refused(format!("a {found} cannot be stored as a {}", T::INFO.name)))
}

#[async_trait]
impl<T: ResourceKind, S: ResourceStore<T>> ResourceStore<Resource> for AnyKind<T, S> {
    async fn get(&self, name: &str) -> Result<Option<Found<Resource>>, ResourceError> {
        Ok(self.store.get(name).await?.map(as_resource))
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<Resource>, ResourceError> {
        let Listed { items, next } = self.store.list(after, limit).await?;
        Ok(Listed { items: items.into_iter().map(as_resource).collect(), next })
    }

    async fn write(
        &self,
        name: &str,
        operation: Operation<'_, Resource>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        match operation {
            Operation::Create(value) => self.store.create(name, &typed(value)?, alongside).await,
            Operation::Update(value, expected) => {
                self.store.update(name, &typed(value)?, expected, alongside).await
            }
            Operation::Upsert(value) => self.store.upsert(name, &typed(value)?, alongside).await,
            Operation::Delete(expected) => self.store.delete(name, expected, alongside).await,
        }
    }
}
