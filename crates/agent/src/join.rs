//! Joining the cluster with a token, for every role that has no identity.

use std::collections::BTreeSet;

use refit_identity::{Identities, Identity, IdentitySlot, PrivateKey, pinned_client_config};
use refit_proto::agent::v1::JoinRequest;
use refit_proto::agent::v1::join_service_client::JoinServiceClient;
use refit_types::{AgentRole, HostId};
use tonic::transport::Channel;

use crate::{AgentConfig, ProxyAddress, RpcError, convert};

/// The roles of the configuration for which the agent has no identity yet.
pub(crate) async fn missing_roles(
    identities: &Identities,
    roles: &BTreeSet<AgentRole>,
) -> Result<Vec<AgentRole>, RpcError> {
    let mut missing = Vec::new();
    for role in roles {
        if identities.load(*role).await?.active().is_none() {
            missing.push(*role);
        }
    }
    Ok(missing)
}

/// Joins at one server, for these roles, and stores what comes of it. `known` is an identity of the host
/// for another role, which proves that it is the same host.
pub(crate) async fn join(
    config: &AgentConfig,
    proxy: &ProxyAddress,
    host: HostId,
    hostname: &str,
    roles: &[AgentRole],
    known: Option<&Identity>,
    identities: &Identities,
) -> Result<(), RpcError> {
    let channel = channel(config, proxy, known).await?;
    let mut keys = Vec::new();
    let mut requests = Vec::new();
    for role in roles {
        let key = PrivateKey::generate()?;
        requests.push(convert::role_request(*role, &key)?);
        keys.push((*role, key));
    }
    let token = config.token.as_ref().map(|token| token.reveal().to_owned()).unwrap_or_default();
    let request =
        JoinRequest { token, host_id: host.to_string(), hostname: hostname.into(), roles: requests };
    let joined = JoinServiceClient::new(channel).join(request).await?.into_inner();
    let authorities = convert::authorities(joined.authorities.unwrap_or_default())?;
    for (role, key) in keys {
        let signed = joined.identities.iter().find(|signed| signed.role_text() == role.as_str());
        let signed =
            signed.ok_or_else(|| RpcError::Answer(format!("no identity came for the role {role}")))?;
        let identity = convert::identity(IdentitySlot::Current, key, signed.clone(), &authorities)?;
        identities.store(role, IdentitySlot::Current, &identity).await?;
    }
    tracing::info!(%host, cluster = joined.cluster, roles = ?roles, "joined the cluster");
    Ok(())
}

async fn channel(
    config: &AgentConfig,
    proxy: &ProxyAddress,
    known: Option<&Identity>,
) -> Result<Channel, RpcError> {
    match (known, config.ca_pin) {
        (Some(identity), _) => convert::connect(proxy, identity).await,
        (None, Some(pin)) => convert::dial_with(proxy, pinned_client_config(pin)?).await,
        (None, None) => Err(RpcError::Answer(
            "it is not known by anything: give the pin of the cluster's CA with --ca-pin".into(),
        )),
    }
}
