//! Connections to the control plane, and conversion between its messages and identities.

use refit_identity::{
    Authorities, Certificate, HostCertificates, Identity, IdentitySlot, PrivateKey, SERVER_NAME,
    client_config,
};
use refit_proto::agent::v1 as wire;
use refit_proto::{DialError, code_of, dial};
use refit_types::AgentRole;
use rustls::pki_types::ServerName;
use tonic::transport::Channel;

use crate::{ProxyAddress, RpcError};

/// A connection to that server, authenticated by `identity`.
pub(crate) async fn connect(proxy: &ProxyAddress, identity: &Identity) -> Result<Channel, RpcError> {
    dial_with(proxy, client_config(identity)?).await
}

/// A connection to that server under any TLS configuration of the cluster's.
pub(crate) async fn dial_with(proxy: &ProxyAddress, tls: rustls::ClientConfig) -> Result<Channel, RpcError> {
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| RpcError::Answer(error.to_string()))?;
    Ok(dial(&proxy.to_string(), name, tls).await?)
}

/// The cluster's authorities, as the server sent them.
pub(crate) fn authorities(from: wire::Authorities) -> Result<Authorities, RpcError> {
    let certificates = from.tls_ca_certs.iter().map(|pem| Certificate::from_pem(pem));
    let rotation = from.rotation.unwrap_or_default();
    Ok(Authorities {
        tls: certificates.collect::<Result<_, _>>()?,
        ssh: from.ssh_ca_certs,
        phase: rotation.phase_text().parse().map_err(|error| RpcError::Answer(format!("phase: {error}")))?,
        rotation_id: rotation.id,
    })
}

/// The request for an identity of that role over that key.
pub(crate) fn role_request(role: AgentRole, key: &PrivateKey) -> Result<wire::RoleRequest, RpcError> {
    Ok(wire::RoleRequest {
        role: role.to_string(),
        role_code: code_of::<refit_proto::v1::AgentRole>(role.as_str()),
        certificate_request: key.signing_request()?,
    })
}

/// The identity that a key and what was signed for it make together.
pub(crate) fn identity(
    slot: IdentitySlot,
    key: PrivateKey,
    signed: wire::SignedIdentity,
    authorities: &Authorities,
) -> Result<Identity, RpcError> {
    let certificates =
        HostCertificates { tls: Certificate::from_pem(&signed.tls_cert)?, ssh: signed.ssh_cert };
    Ok(Identity::for_host(
        slot.as_str(),
        key,
        certificates,
        authorities.tls.clone(),
        authorities.ssh.clone(),
    )?)
}

/// Whether a connection failed because the server is not trusted, not because it is unreachable.
pub(crate) fn is_distrust(error: &DialError) -> bool {
    matches!(error, DialError::Untrusted { .. })
}

#[cfg(test)]
mod tests {
    use refit_identity::Phase;

    use super::*;

    #[test]
    fn a_phase_is_read_from_either_field_and_never_guessed() {
        let read_phase = |phase: &str, phase_code: i32| {
            let rotation = wire::Rotation { id: "r1".into(), phase: phase.into(), phase_code };
            authorities(wire::Authorities { rotation: Some(rotation), ..Default::default() })
        };
        let rollback = refit_proto::v1::RotationPhase::Rollback.into();
        for (phase, code) in [("rollback", rollback), ("rollback", 0), ("", rollback), ("rollback", 99)] {
            let read = read_phase(phase, code).unwrap();
            assert_eq!((read.phase, read.rotation_id.as_str()), (Phase::Rollback, "r1"), "{phase:?} {code}");
        }
        // An unknown phase is not followed: the agent keeps its identities.
        for (phase, code) in [("revoke", 99), ("revoke", 0), ("", 99), ("", 0)] {
            let refused = read_phase(phase, code).unwrap_err().to_string();
            assert!(refused.contains("phase: "), "{refused}");
        }
        assert!(read_phase("", 99).unwrap_err().to_string().contains("99"), "what came is named");
    }
}
