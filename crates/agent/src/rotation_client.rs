//! Follows a rotation of the authorities, and renews identities, over the network.

use refit_identity::{AgentState, Authorities, Identities, IdentitySlot, PrivateKey, Step, next_step};
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::{RenewRequest, Rotation};
use refit_types::AgentRole;

use crate::{ProxyAddress, RpcError, convert};

/// A role needs at most three steps to reach the phase of its server; more would be a loop.
const MOST_STEPS: usize = 8;

/// The phase of a rotation that all roles of the host have followed. None if one lags behind the others, as
/// after a crash between two of them, so that the server has all of them follow again.
pub(crate) fn reported_rotation<'a>(states: impl IntoIterator<Item = &'a AgentState>) -> Rotation {
    let mut states = states.into_iter().map(|state| (&state.rotation_id, state.phase));
    match states.next() {
        Some((id, phase)) if states.all(|other| other == (id, phase)) => Rotation::at(id, phase.as_str()),
        _ => Rotation::default(),
    }
}

/// Brings one role to the phase of the rotation that the server reports.
pub(crate) async fn follow(
    identities: &Identities,
    role: AgentRole,
    proxy: &ProxyAddress,
    authorities: &Authorities,
) -> Result<(), RpcError> {
    for _ in 0..MOST_STEPS {
        let stored = identities.load(role).await?;
        match next_step(&stored, authorities)? {
            Step::Nothing => return Ok(()),
            Step::Request { into } => renew(identities, role, proxy, into).await?,
            Step::Rejoin => {
                return Err(RpcError::Answer(format!(
                    "its authorities were replaced while this host was disconnected; remove {} and join again",
                    identities.describe()
                )));
            }
            step => identities.carry_out(role, &step).await?,
        }
    }
    Err(RpcError::Answer(format!("role {role}: rotation did not converge after {MOST_STEPS} steps")))
}

/// Has a new key signed for the role, authenticated by its active identity, and stores the result.
pub(crate) async fn renew(
    identities: &Identities,
    role: AgentRole,
    proxy: &ProxyAddress,
    into: IdentitySlot,
) -> Result<(), RpcError> {
    let stored = identities.load(role).await?;
    let active = stored
        .active()
        .ok_or_else(|| RpcError::Answer(format!("there is no identity of the role {role}")))?;
    let channel = convert::connect(proxy, active).await?;
    let key = PrivateKey::generate()?;
    let request = convert::role_request(role, &key)?;
    let renewed =
        AgentServiceClient::new(channel).renew(RenewRequest { role: Some(request) }).await?.into_inner();
    let authorities = convert::authorities(renewed.authorities.unwrap_or_default())?;
    let identity = convert::identity(into, key, renewed.identity.unwrap_or_default(), &authorities)?;
    identities.store(role, into, &identity).await?;
    tracing::info!(%role, slot = %into, expires = %identity.expires(), "obtained a new identity");
    Ok(())
}

#[cfg(test)]
mod tests {
    use refit_identity::Phase;

    use super::*;

    #[test]
    fn a_host_stands_where_all_of_its_roles_do() {
        let at = |id: &str, phase, presents| AgentState { rotation_id: id.into(), phase, presents };
        let node = at("r1", Phase::UpdateClients, IdentitySlot::Replacement);
        let there = Rotation::at("r1", "update_clients");
        assert_eq!(reported_rotation([&node]), there);
        assert_eq!(reported_rotation([&node, &at("r1", Phase::UpdateClients, IdentitySlot::Current)]), there);
        let behind = [
            AgentState::default(),
            at("r1", Phase::Init, IdentitySlot::Current),
            at("r0", node.phase, node.presents),
        ];
        for kube in &behind {
            assert_eq!(reported_rotation([&node, kube]), Rotation::default(), "{kube:?}");
            assert_eq!(reported_rotation([kube, &node]), Rotation::default(), "{kube:?}");
        }
        let never = Rotation::at("", "standby");
        assert_eq!(reported_rotation([&AgentState::default(), &AgentState::default()]), never);
    }
}
