//! TLS for clients of the control plane: which servers they believe, and by what they know them.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, TrustAnchor, UnixTime};
use rustls::{
    CertificateError, ConfigBuilder, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use webpki::EndEntityCert;

use crate::verify::{self, Purpose, Refusal};
use crate::{CaPin, Certificate, ClusterName, Identity, Result};

/// The name that every server of every control plane has, and nobody else. Clients check for it and not
/// for the address they dialled, so a server can be reached at any.
pub const SERVER_NAME: &str = "server.refit.internal";

/// TLS for a client with an identity: it presents it, and accepts only servers of its own cluster.
///
/// Servers are known by [`SERVER_NAME`] whatever address was dialled. ALPN is left to the caller.
pub fn client_config(identity: &Identity) -> Result<ClientConfig> {
    let anchors = identity.authorities().iter().map(verify::anchor).collect::<Result<Vec<_>>>()?;
    let expected = Expected::Cluster(identity.cluster().clone(), anchors);
    let chain = vec![identity.certificate().der().clone()];
    Ok(builder(expected)?.with_client_auth_cert(chain, identity.key().der())?)
}

/// TLS for a client that knows only the pin of its cluster's CA. It presents no certificate.
///
/// The server must send the CA's certificate after its own, as those of the control plane do.
pub fn pinned_client_config(pin: CaPin) -> Result<ClientConfig> {
    Ok(builder(Expected::Pin(pin))?.with_no_client_auth())
}

/// TLS for a client that may know its cluster in several ways: by authorities, by a pin, or by a certificate
/// that the system's authorities vouch for. It shows none.
pub fn public_client_config(pin: Option<CaPin>, authorities: &[Certificate]) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    // An image may have none of these, and then the others count alone.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let system = match roots.is_empty() {
        true => None,
        false => WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok(),
    };
    let anchors = authorities.iter().map(verify::anchor).collect::<Result<Vec<_>>>()?;
    Ok(builder(Expected::Either { anchors, pin, system })?.with_no_client_auth())
}

fn builder(expected: Expected) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(ServerVerifier { expected, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
}

/// Why a client does not believe that it reached a server of its cluster. It comes wrapped in a
/// [`rustls::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerRefused {
    /// No CA with the pinned key came along.
    #[error(
        "the server is not of the cluster with the CA pin {expected}: {}; check the address and the pin",
        sent(.presented)
    )]
    Pin {
        /// The pin asked for.
        expected: CaPin,
        /// The pins of the authorities that the server sent.
        presented: Vec<CaPin>,
    },
    /// Another authority signed its certificate.
    #[error("the server's certificate was not signed by the authority of {cluster}{}; check the address", claim(.claimed))]
    OtherAuthority {
        /// The cluster, or the pin, that was expected.
        cluster: String,
        /// The cluster that the certificate says it is of, which is unproven.
        claimed: Option<ClusterName>,
    },
    /// A certificate of the cluster that is not one for servers.
    #[error("the certificate that was shown is not one of a server of the control plane")]
    NotAServer,
    /// Its certificate has expired.
    #[error("the server's certificate expired at {0}; check the clock here, or have the server renew it")]
    Expired(Timestamp),
    /// Its certificate is not valid yet.
    #[error("the server's certificate is valid only from {0}: set the clocks right")]
    NotYetValid(Timestamp),
    /// It is no certificate that Refit makes.
    #[error("the server's certificate cannot be used: {0}")]
    Malformed(String),
}

fn sent(presented: &[CaPin]) -> String {
    match presented {
        [] => "it sent no CA certificate".into(),
        pins => format!("it sent {}", pins.iter().map(CaPin::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn claim(claimed: &Option<ClusterName>) -> String {
    claimed.as_ref().map(|cluster| format!(", but by one that calls itself {cluster}")).unwrap_or_default()
}

#[derive(Debug)]
enum Expected {
    Cluster(ClusterName, Vec<TrustAnchor<'static>>),
    Pin(CaPin),
    Either {
        anchors: Vec<TrustAnchor<'static>>,
        pin: Option<CaPin>,
        system: Option<Arc<WebPkiServerVerifier>>,
    },
}

#[derive(Debug)]
struct ServerVerifier {
    expected: Expected,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<(), ServerRefused> {
        let (anchors, whose) = match &self.expected {
            Expected::Cluster(cluster, anchors) => (anchors.clone(), format!("cluster {cluster}")),
            Expected::Pin(pin) => (vec![pinned(*pin, others)?], format!("the pin {pin}")),
            Expected::Either { anchors, pin, .. } => {
                let mut anchors = anchors.clone();
                match pin.map(|pin| pinned(pin, others)) {
                    Some(Ok(anchor)) => anchors.push(anchor),
                    Some(Err(refused)) if anchors.is_empty() => return Err(refused),
                    _ => {}
                }
                (anchors, "this host's trust".into())
            }
        };
        verify::check(leaf, &anchors, Purpose::Server, now).map_err(|refusal| match refusal {
            Refusal::Malformed(reason) => ServerRefused::Malformed(reason),
            Refusal::OtherIssuer | Refusal::NotSigned => ServerRefused::OtherAuthority {
                cluster: whose,
                claimed: Certificate::from_der(leaf).ok().and_then(|leaf| leaf.claimed_cluster()),
            },
            Refusal::Expired(at) => ServerRefused::Expired(at),
            Refusal::NotYetValid(from) => ServerRefused::NotYetValid(from),
            Refusal::WrongPurpose => ServerRefused::NotAServer,
        })?;
        let malformed = |error: webpki::Error| ServerRefused::Malformed(error.to_string());
        let name =
            DnsName::try_from(SERVER_NAME).map_err(|error| ServerRefused::Malformed(error.to_string()))?;
        let parsed = EndEntityCert::try_from(leaf).map_err(malformed)?;
        let named = parsed.verify_is_valid_for_subject_name(&ServerName::DnsName(name));
        named.map_err(|_| ServerRefused::NotAServer)
    }
}

/// The authority among `others` whose key is pinned. That its own key signed it means that the pinned
/// authority itself wrote what it says.
fn pinned(
    pin: CaPin,
    others: &[CertificateDer<'_>],
) -> std::result::Result<TrustAnchor<'static>, ServerRefused> {
    let certificates = others.iter().filter_map(|der| Certificate::from_der(der).ok());
    let authorities: Vec<Certificate> = certificates.filter(Certificate::is_authority).collect();
    let found = authorities.iter().find(|authority| pin.matches(authority) && authority.is_self_signed());
    found.and_then(|authority| verify::anchor(authority).ok()).ok_or_else(|| ServerRefused::Pin {
        expected: pin,
        presented: authorities.iter().map(CaPin::of).collect(),
    })
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let checked = self.check(end_entity, intermediates, now);
        let vouched = |system: &Arc<WebPkiServerVerifier>| {
            system.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now).is_ok()
        };
        match (checked, &self.expected) {
            (Ok(()), _) => Ok(ServerCertVerified::assertion()),
            (Err(_), Expected::Either { system: Some(system), .. }) if vouched(system) => {
                Ok(ServerCertVerified::assertion())
            }
            (Err(refused), _) => Err(CertificateError::Other(OtherError(Arc::new(refused))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
