//! TLS as a server of the control plane speaks it: the certificate that it shows, and what it asks of its
//! clients in the handshake.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use refit_identity::{Certificate, PrivateKey};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::{Authority, Result};

/// TLS for a server of the control plane: it presents `certificate` as it is at the time of each handshake,
/// and lets clients present theirs, for [`refit_identity::Trust`] to judge. ALPN is left to the caller.
pub fn server_config(certificate: Arc<ServerCertificate>) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = Arc::new(AnyClientCertificate::new(provider.clone()));
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_client_cert_verifier(clients).with_cert_resolver(certificate))
}

/// The certificate that a server presents. It can be replaced while the server runs, as certificates end
/// sooner than servers.
pub struct ServerCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    /// Presents `certificate`, and the authority's after it for clients that know only its pin.
    pub fn new(key: &PrivateKey, certificate: &Certificate, authority: &Authority) -> Result<Self> {
        Ok(Self { current: RwLock::new(certified(key, certificate, authority)?) })
    }

    /// Presents another one from the next handshake on; open connections stay.
    pub fn replace(&self, key: &PrivateKey, certificate: &Certificate, authority: &Authority) -> Result<()> {
        let certified = certified(key, certificate, authority)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }
}

fn certified(
    key: &PrivateKey,
    certificate: &Certificate,
    authority: &Authority,
) -> Result<Arc<CertifiedKey>> {
    if !key.belongs_to(certificate) {
        return Err(refit_identity::Error::KeyMismatch.into());
    }
    let chain = vec![certificate.der().clone(), authority.server_certificate().der().clone()];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Ok(Arc::new(CertifiedKey::from_der(chain, key.der(), &provider)?))
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerCertificate(..)")
    }
}

/// Lets a client show ANY certificate, or none, and checks only that it has the private key.
///
/// **A handshake that this accepts proves nothing about who the client is.** Every call must be
/// authenticated by [`refit_identity::Trust::verify_client`] with the certificates of its connection. It is done
/// there and not here so that a client can be told what is wrong in words instead of by a TLS alert, so
/// that a change of trust needs no new TLS configuration, and so that connections that stay open and
/// sessions that are resumed end with their certificate.
#[derive(Debug)]
pub struct AnyClientCertificate {
    provider: Arc<CryptoProvider>,
}

impl AnyClientCertificate {
    /// Checks possession with the signature algorithms of `provider`.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

impl ClientCertVerifier for AnyClientCertificate {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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
