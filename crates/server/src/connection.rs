//! The peer of a TLS connection and who it is, verified again for each call. Used by every RPC and web request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use refit_identity::{AuthError, Certificate, Principal, Trust};
use rustls::pki_types::CertificateDer;

/// The peer of a connection, with the certificates of its handshake.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    chain: Vec<CertificateDer<'static>>,
    /// The last verification and its trust; signatures are not verified again for every call.
    verified: Mutex<Option<Verified>>,
}

#[derive(Debug)]
struct Verified {
    trust: Arc<Trust>,
    principal: Principal,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, chain: &[CertificateDer<'_>]) -> Self {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self { address, chain, verified: Mutex::new(None) }
    }

    /// Who is calling, checked at this moment: a certificate that has expired since the handshake is refused, and so is
    /// one whose authority is no longer trusted.
    pub(crate) fn principal(&self, trust: &Arc<Trust>, now: Timestamp) -> Result<Principal, AuthError> {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*verified
            && Arc::ptr_eq(&known.trust, trust)
            && known.not_before <= now
            && now < known.not_after
        {
            return Ok(known.principal.clone());
        }
        let principal = trust.verify_client(&self.chain, now)?;
        if let Some((not_before, not_after)) = self.validity() {
            *verified =
                Some(Verified { trust: trust.clone(), principal: principal.clone(), not_before, not_after });
        }
        Ok(principal)
    }

    /// The certificate chain, leaf first.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// When the certificate expires.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        self.validity().map(|(_, not_after)| not_after)
    }

    fn validity(&self) -> Option<(Timestamp, Timestamp)> {
        let leaf = Certificate::from_der(self.chain.first()?).ok()?;
        Some((leaf.not_before(), leaf.not_after()))
    }
}
