//! One way of storing a type: where its keys are and what the bytes mean. Pure: the stores and the migrations read and
//! write.

use bytes::Bytes;
use refit_backend::{Item, Key, KeyRange, Result};

use crate::{Found, ResourceError};

/// One way of storing a type: below which key, and as which bytes.
#[derive(Debug)]
pub struct StorageFormat<T> {
    /// Items are stored at this key followed by their name.
    pub prefix: Key,
    /// Turns a value into what is stored.
    pub encode: fn(&T) -> Bytes,
    /// Turns what is stored under a name into a value, or says why it cannot be one.
    pub decode: fn(name: &str, value: &[u8]) -> Result<T, String>,
}

impl<T> StorageFormat<T> {
    /// Where the item of that name is stored.
    pub fn key(&self, name: &str) -> Result<Key> {
        self.prefix.child(name)
    }

    /// Where all of them are stored.
    pub fn range(&self) -> KeyRange {
        KeyRange::below(&self.prefix)
    }

    /// The names behind `after` in key order, or all of them.
    pub fn range_after(&self, after: Option<&str>) -> Result<KeyRange> {
        Ok(match after {
            Some(name) => self.range().after(&self.key(name)?),
            None => self.range(),
        })
    }

    /// The name of the item at `key`, which must be below the prefix.
    pub fn name<'k>(&self, key: &'k Key) -> &'k str {
        key.as_str().get(self.prefix.as_str().len() + 1..).unwrap_or_default()
    }
}

impl<T> StorageFormat<T> {
    pub(crate) fn found(&self, item: &Item) -> Result<Found<T>, ResourceError> {
        let value = (self.decode)(self.name(&item.key), &item.value)
            .map_err(|reason| ResourceError::Unreadable { key: item.key.to_string(), reason })?;
        Ok(Found { value, revision: item.revision })
    }
}

impl<T> Clone for StorageFormat<T> {
    fn clone(&self) -> Self {
        Self { prefix: self.prefix.clone(), encode: self.encode, decode: self.decode }
    }
}
