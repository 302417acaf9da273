//! An agent's store, typed: identities, the state of a rotation and the host's id, over any backend.

use refit_types::{AgentRole, HostId};

use crate::{
    AgentState, Identity, IdentityKey, IdentitySlot, IdentityStoreError, SharedIdentityBackend, Step,
    StoredIdentities,
};

type Result<T> = std::result::Result<T, IdentityStoreError>;

/// An agent's store, read and written as typed values.
#[derive(Debug, Clone)]
pub struct Identities {
    backend: SharedIdentityBackend,
}

impl Identities {
    /// Reads and writes there.
    pub fn new(backend: SharedIdentityBackend) -> Self {
        Self { backend }
    }

    /// Names the store for people.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }

    /// Everything stored for one role.
    pub async fn load(&self, role: AgentRole) -> Result<StoredIdentities> {
        let state = self.backend.get(IdentityKey::State(role)).await?;
        let state = state.map(|text| AgentState::from_json(&text)).transpose();
        Ok(StoredIdentities {
            current: self.identity(role, IdentitySlot::Current).await?,
            replacement: self.identity(role, IdentitySlot::Replacement).await?,
            state: state.map_err(|error| self.unusable(IdentityKey::State(role), error))?.unwrap_or_default(),
        })
    }

    /// Stores an identity. Only the state decides whether it is presented.
    pub async fn store(&self, role: AgentRole, slot: IdentitySlot, identity: &Identity) -> Result<()> {
        let key = IdentityKey::Identity(role, slot);
        let text = identity.to_json().map_err(|error| self.unusable(key, error))?;
        self.backend.put(key, text.into_bytes()).await
    }

    /// Stores how far the role has followed a rotation.
    pub async fn store_state(&self, role: AgentRole, state: &AgentState) -> Result<()> {
        let key = IdentityKey::State(role);
        let text = state.to_json().map_err(|error| self.unusable(key, error))?;
        self.backend.put(key, text.into_bytes()).await
    }

    /// Makes the writes of a step, in an order in which a crash between them does no harm. A
    /// [`Step::Request`] has none of its own: whoever requests calls [`Identities::store`].
    pub async fn carry_out(&self, role: AgentRole, step: &Step) -> Result<()> {
        match step {
            Step::Nothing | Step::Request { .. } | Step::Rejoin => Ok(()),
            Step::Note { state } => self.store_state(role, state).await,
            Step::Rewrite { slot, identity, state } => {
                self.store(role, *slot, identity).await?;
                self.store_state(role, state).await
            }
            Step::Promote { identity, state } => {
                self.store(role, IdentitySlot::Current, identity).await?;
                self.store_state(role, state).await
            }
        }
    }

    /// The host that the agent is, if it has been decided.
    pub async fn host_id(&self) -> Result<Option<HostId>> {
        let Some(value) = self.backend.get(IdentityKey::HostId).await? else { return Ok(None) };
        let id = std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse().ok());
        id.map(Some).ok_or_else(|| self.unusable(IdentityKey::HostId, "it is not a UUID"))
    }

    /// Decides which host the agent is: the first to decide wins, and what was decided is returned.
    pub async fn decide_host_id(&self, id: HostId) -> Result<HostId> {
        match self.backend.create(IdentityKey::HostId, id.to_string().into_bytes()).await {
            Ok(()) => Ok(id),
            Err(IdentityStoreError::AlreadyExists { .. }) => Ok(self.host_id().await?.unwrap_or(id)),
            Err(error) => Err(error),
        }
    }

    async fn identity(&self, role: AgentRole, slot: IdentitySlot) -> Result<Option<Identity>> {
        let key = IdentityKey::Identity(role, slot);
        let text = self.backend.get(key).await?;
        text.map(|text| Identity::from_json(&text)).transpose().map_err(|error| self.unusable(key, error))
    }

    fn unusable(&self, key: IdentityKey, reason: impl ToString) -> IdentityStoreError {
        IdentityStoreError::Unusable { key, store: self.describe(), reason: reason.to_string() }
    }
}
