//! What an agent does next in a rotation: a pure function of what it has stored and what its server says.

use crate::{AgentState, Certificate, Identity, IdentitySlot, Phase, Result};

/// The authorities to trust and the phase of their rotation, as a server reports them to its agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    /// For TLS. The first is the one that signs.
    pub tls: Vec<Certificate>,
    /// For SSH, in the form of `authorized_keys` and in the same order.
    pub ssh: Vec<String>,
    /// The rotation that runs, or the last one that did; empty when there has been none.
    pub rotation_id: String,
    /// How far it has come.
    pub phase: Phase,
}

/// Everything that an agent has stored for one role.
#[derive(Debug, Clone, Default)]
pub struct StoredIdentities {
    /// The identity from before the rotation.
    pub current: Option<Identity>,
    /// The identity of a new authority, of this rotation or an earlier one.
    pub replacement: Option<Identity>,
    /// Which of them is presented, and how far the rotation was followed.
    pub state: AgentState,
}

/// What an agent has to do for one role to reach the phase of its server. After anything but
/// [`Step::Nothing`] call [`next_step`] again, with what is stored by then.
#[derive(Debug, Clone)]
pub enum Step {
    /// The role is up to date.
    Nothing,
    /// Write the state only.
    Note {
        /// What to write.
        state: AgentState,
    },
    /// Trust other authorities than before: write the identity, then the state.
    Rewrite {
        /// Where the identity is.
        slot: IdentitySlot,
        /// The identity with the authorities to trust now.
        identity: Box<Identity>,
        /// What to write then.
        state: AgentState,
    },
    /// The rotation has ended: write the replacement as `current`, then the state.
    Promote {
        /// The identity, now as `current`.
        identity: Box<Identity>,
        /// What to write then.
        state: AgentState,
    },
    /// Make a new key, have it signed and write the identity, which comes with the authorities of that
    /// moment. Only the next step activates it.
    Request {
        /// Where to write it.
        into: IdentitySlot,
    },
    /// No stored identity was signed by an authority that is still trusted: the host must join again.
    Rejoin,
}

impl StoredIdentities {
    /// The identity in that place.
    pub fn get(&self, slot: IdentitySlot) -> Option<&Identity> {
        match slot {
            IdentitySlot::Current => self.current.as_ref(),
            IdentitySlot::Replacement => self.replacement.as_ref(),
        }
    }

    /// The slot of the identity to present now, which is also the one to renew.
    pub fn active_slot(&self) -> IdentitySlot {
        let presents = self.state.presents;
        if self.get(presents).is_some() { presents } else { presents.other() }
    }

    /// The identity to present now.
    pub fn active(&self) -> Option<&Identity> {
        self.get(self.active_slot())
    }

    /// The identities to try, in order. The second helps an agent that missed the end of a rotation or a
    /// rollback, when the server refuses the first.
    pub fn candidates(&self) -> impl Iterator<Item = (IdentitySlot, &Identity)> {
        let active = self.active_slot();
        [active, active.other()].into_iter().filter_map(|slot| self.get(slot).map(|found| (slot, found)))
    }
}

/// The one next thing to do, given what is stored and what the server says.
///
/// In `update_clients` and `update_servers` an agent presents an identity of the new authority, kept as
/// `replacement`; in all other phases its `current` one, of the authority that was there before. So the
/// question is always the same: which identity did the authority sign that signs now? It is asked of
/// what is stored and not of the state, so it does not matter where the agent was stopped the last time,
/// nor which phases it has missed.
pub fn next_step(stored: &StoredIdentities, authorities: &Authorities) -> Result<Step> {
    let Some(signer) = authorities.tls.first() else { return Ok(Step::Rejoin) };
    let signed_by = |authority| move |identity: &&Identity| identity.certificate().is_signed_by(authority);
    let updates_clients = authorities.phase.updates_clients();
    if let Some(current) = stored.current.as_ref().filter(signed_by(signer)) {
        return settled(stored, IdentitySlot::Current, current, authorities);
    }
    if let Some(replacement) = stored.replacement.as_ref().filter(signed_by(signer)) {
        if updates_clients {
            return settled(stored, IdentitySlot::Replacement, replacement, authorities);
        }
        return promote(replacement, authorities.phase, authorities);
    }
    let counts = |identity: &&Identity| {
        authorities.tls.iter().any(|authority| identity.certificate().is_signed_by(authority))
    };
    match (stored.current.as_ref().filter(counts), stored.replacement.as_ref().filter(counts)) {
        (None, None) => Ok(Step::Rejoin),
        _ if !updates_clients => Ok(Step::Request { into: IdentitySlot::Current }),
        // The end of an earlier rotation was missed. The next replacement must not take the place of
        // the only identity that a rollback could go back to.
        (None, Some(replacement)) => promote(replacement, Phase::Init, authorities),
        (Some(_), _) => Ok(Step::Request { into: IdentitySlot::Replacement }),
    }
}

fn promote(replacement: &Identity, phase: Phase, authorities: &Authorities) -> Result<Step> {
    let identity = Box::new(trusting(replacement, IdentitySlot::Current, authorities)?);
    let state = AgentState { phase, ..state(IdentitySlot::Current, authorities) };
    Ok(Step::Promote { identity, state })
}

fn settled(
    stored: &StoredIdentities,
    slot: IdentitySlot,
    identity: &Identity,
    authorities: &Authorities,
) -> Result<Step> {
    let state = state(slot, authorities);
    if identity.authorities() != authorities.tls || identity.ssh_authorities() != authorities.ssh {
        let identity = Box::new(trusting(identity, slot, authorities)?);
        return Ok(Step::Rewrite { slot, identity, state });
    }
    Ok(if stored.state == state { Step::Nothing } else { Step::Note { state } })
}

fn trusting(identity: &Identity, slot: IdentitySlot, authorities: &Authorities) -> Result<Identity> {
    identity.with_authorities(slot.as_str(), authorities.tls.clone(), authorities.ssh.clone())
}

fn state(presents: IdentitySlot, authorities: &Authorities) -> AgentState {
    AgentState { rotation_id: authorities.rotation_id.clone(), phase: authorities.phase, presents }
}
