//! What an agent needs of a place to keep its identities in, and the keys under which they are kept.

use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;
use refit_types::AgentRole;

use crate::IdentitySlot;

/// The key of a value in an agent's store. Nothing is ever deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdentityKey {
    /// An identity of one role.
    Identity(AgentRole, IdentitySlot),
    /// How far one role has followed a rotation.
    State(AgentRole),
    /// The host that it is.
    HostId,
}

impl IdentityKey {
    /// Every key, for those who copy a store to another.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_role = |role: &AgentRole| {
            [
                Self::Identity(*role, IdentitySlot::Current),
                Self::Identity(*role, IdentitySlot::Replacement),
                Self::State(*role),
            ]
        };
        std::iter::once(Self::HostId).chain(AgentRole::ALL.iter().flat_map(of_role))
    }
}

impl fmt::Display for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(role, slot) => write!(f, "/ids/{role}/{slot}"),
            Self::State(role) => write!(f, "/states/{role}/state"),
            Self::HostId => f.write_str("/host_uuid"),
        }
    }
}

/// Why a read or write of an agent's store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityStoreError {
    /// The key was to be created, and exists.
    #[error("{key} is already in {store}")]
    AlreadyExists {
        /// The key.
        key: IdentityKey,
        /// The store.
        store: String,
    },
    /// The stored value cannot be used. It is left as it is.
    #[error("{key} in {store} cannot be used: {reason}")]
    Unusable {
        /// The key.
        key: IdentityKey,
        /// The store.
        store: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store itself failed.
    #[error("{store} failed: {reason}")]
    Failed {
        /// The store.
        store: String,
        /// What it said.
        reason: String,
    },
}

/// A store shared by all roles of an agent.
pub type SharedIdentityBackend = Arc<dyn IdentityBackend>;

/// What an agent needs of a place to keep its identities in: on a host a file, in Kubernetes a Secret.
/// What a call has written is there after a power cut once the call returns.
/// [`crate::conformance`] is the contract as a suite.
#[async_trait]
pub trait IdentityBackend: Debug + Send + Sync + 'static {
    /// Names the store for people, so that they find it.
    fn describe(&self) -> String;

    /// Writes a key that must not exist: of several who try, one succeeds.
    async fn create(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError>;

    /// Writes a key, whether it exists or not, whole or not at all.
    async fn put(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError>;

    /// The value at a key, if there is one.
    async fn get(&self, key: IdentityKey) -> Result<Option<Vec<u8>>, IdentityStoreError>;
}
