use refit_pki::{
    Authorities, Certificate, HostCertificates, Identity, PrivateKey, SERVER_NAME, Slot, client_config,
};
use refit_proto::agent::v1 as wire;
use refit_proto::{DialError, dial};
use rustls::pki_types::ServerName;
use tonic::transport::Channel;

use crate::{ProxyAddress, TalkError};

/// A connection to that server that shows `identity`.
pub(crate) async fn connect(proxy: &ProxyAddress, identity: &Identity) -> Result<Channel, TalkError> {
    dial_with(proxy, client_config(identity)?).await
}

/// A connection to that server under any TLS configuration of the cluster's.
pub(crate) async fn dial_with(proxy: &ProxyAddress, tls: rustls::ClientConfig) -> Result<Channel, TalkError> {
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| TalkError::Answer(error.to_string()))?;
    Ok(dial(&proxy.to_string(), name, tls).await?)
}

/// What the server says of the cluster's authorities.
pub(crate) fn authorities(from: wire::Authorities) -> Result<Authorities, TalkError> {
    let certificates = from.tls_ca_certs.iter().map(|pem| Certificate::from_pem(pem));
    let rotation = from.rotation.unwrap_or_default();
    Ok(Authorities {
        tls: certificates.collect::<Result<_, _>>()?,
        ssh: from.ssh_ca_certs,
        rotation_id: rotation.id,
        phase: rotation.phase.parse().map_err(|error| TalkError::Answer(format!("phase: {error}")))?,
    })
}

/// The identity that a key and what was signed for it make together.
pub(crate) fn identity(
    slot: Slot,
    key: PrivateKey,
    signed: wire::SignedIdentity,
    authorities: &Authorities,
) -> Result<Identity, TalkError> {
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

/// Whether a refusal to connect is about who the other side is, and not about whether it is there.
pub(crate) fn is_distrust(error: &DialError) -> bool {
    matches!(error, DialError::Untrusted { .. })
}
