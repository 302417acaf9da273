//! Identities in memory, for tests and for agents that join anew each time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::{IdentityBackend, IdentityKey, IdentityStoreError};

/// Identities that are gone with the process, for tests and for agents that join anew each time.
#[derive(Default)]
pub struct MemoryIdentities {
    values: Mutex<BTreeMap<IdentityKey, Vec<u8>>>,
}

impl MemoryIdentities {
    fn values(&self) -> std::sync::MutexGuard<'_, BTreeMap<IdentityKey, Vec<u8>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl IdentityBackend for MemoryIdentities {
    fn describe(&self) -> String {
        "memory".into()
    }

    async fn create(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError> {
        let mut values = self.values();
        if values.contains_key(&key) {
            return Err(IdentityStoreError::AlreadyExists { key, store: self.describe() });
        }
        values.insert(key, value);
        Ok(())
    }

    async fn put(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError> {
        self.values().insert(key, value);
        Ok(())
    }

    async fn get(&self, key: IdentityKey) -> Result<Option<Vec<u8>>, IdentityStoreError> {
        Ok(self.values().get(&key).cloned())
    }
}

impl fmt::Debug for MemoryIdentities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values().keys().map(ToString::to_string)).finish()
    }
}
