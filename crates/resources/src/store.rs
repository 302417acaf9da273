//! The store of one kind of resource, as the server and the migrations see it: whatever the formats behind it.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use refit_backend::{Key, Revision};
use refit_types::Resource;

use crate::ResourceError;

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

/// What else is written in the transaction of a change: all of it happens, or nothing.
pub type Alongside<'a> = &'a [(Key, Vec<u8>)];

/// The store of some kind, for whoever works on resources of any kind.
pub type SharedStore = Arc<dyn ResourceStore<Resource>>;

/// A write of one name, and what it needs to find there.
#[derive(Debug)]
pub enum Operation<'a, T> {
    /// Stores a value under a name that must be free.
    Create(&'a T),
    /// Replaces a value that must exist and, if a revision is given, be of that revision.
    Update(&'a T, Option<Revision>),
    /// Stores a value, whether the name is free or not.
    Upsert(&'a T),
    /// Deletes a value that must exist and, if a revision is given, be of that revision.
    Delete(Option<Revision>),
}

impl<T> Clone for Operation<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Operation<'_, T> {}

impl<'a, T> Operation<'a, T> {
    /// What is to be stored; nothing by a deletion.
    pub fn value(self) -> Option<&'a T> {
        match self {
            Self::Create(value) | Self::Update(value, _) | Self::Upsert(value) => Some(value),
            Self::Delete(_) => None,
        }
    }
}

/// Named values of one type, whatever the formats in which they are stored.
#[async_trait]
pub trait ResourceStore<T: Sync>: Debug + Send + Sync {
    /// The value of that name.
    async fn get(&self, name: &str) -> Result<Option<Found<T>>, ResourceError>;

    /// Up to `limit` values behind the name `after`.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<T>, ResourceError>;

    /// Carries out an operation on a name, together with what is written alongside.
    async fn write(
        &self,
        name: &str,
        operation: Operation<'_, T>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError>;

    /// Stores a value under a name that must be free.
    async fn create(
        &self,
        name: &str,
        value: &T,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        self.write(name, Operation::Create(value), alongside).await
    }

    /// Replaces a value that must exist and, if `expected` is given, be of that revision.
    async fn update(
        &self,
        name: &str,
        value: &T,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        self.write(name, Operation::Update(value, expected), alongside).await
    }

    /// Stores a value, whether the name is free or not.
    async fn upsert(
        &self,
        name: &str,
        value: &T,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        self.write(name, Operation::Upsert(value), alongside).await
    }

    /// Deletes a value that must exist and, if `expected` is given, be of that revision.
    async fn delete(
        &self,
        name: &str,
        expected: Option<Revision>,
        alongside: Alongside<'_>,
    ) -> Result<Revision, ResourceError> {
        self.write(name, Operation::Delete(expected), alongside).await
    }
}
