//! Whose certificate a server believes: the authorities of now, and why others are refused.

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, TrustAnchor};

use crate::verify::{self, Purpose, Refusal, unix};
use crate::{Certificate, ClusterName, Error, Principal, Result};

/// The authorities that a server trusts now, by which it authenticates callers.
#[derive(Debug, Clone)]
pub struct Trust {
    cluster: ClusterName,
    anchors: Vec<TrustAnchor<'static>>,
}

/// Why a caller is not authenticated. Each variant needs another remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The client sent no certificate.
    #[error("no client certificate was sent: sign in to cluster {cluster}")]
    Missing {
        /// The cluster that was called.
        cluster: ClusterName,
    },
    /// It has expired.
    #[error("the certificate expired at {at}: sign in again")]
    Expired {
        /// When.
        at: Timestamp,
    },
    /// It is not valid yet, or a clock is wrong.
    #[error("the certificate is valid only from {from}, and it is {now} here: set the clocks right")]
    NotYetValid {
        /// From when.
        from: Timestamp,
        /// The time at the server.
        now: Timestamp,
    },
    /// Somebody else signed it. What it says about that is unproven.
    #[error("the certificate is not of this cluster, {cluster}, but was signed by {}: use an identity of {cluster}", claim(.claimed))]
    OtherCluster {
        /// The cluster that was called.
        cluster: ClusterName,
        /// The cluster that the certificate says it is of.
        claimed: Option<ClusterName>,
    },
    /// It says that this cluster signed it, which is not so.
    #[error(
        "the certificate says that it is of cluster {cluster}, but the authority of {cluster} did not sign it: \
         it was altered, or is of an authority that has been replaced; sign in again"
    )]
    NotSigned {
        /// The cluster that was called.
        cluster: ClusterName,
    },
    /// It was not made for signing in.
    #[error("the certificate is not one for clients: a server's certificate cannot be used to sign in")]
    WrongPurpose,
    /// It is no certificate, or none that Refit makes.
    #[error("the certificate cannot be used: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
}

fn claim(claimed: &Option<ClusterName>) -> String {
    match claimed {
        Some(cluster) => format!("one that calls itself {cluster}"),
        None => "an unknown authority".into(),
    }
}

impl Trust {
    /// Trusts the given authorities, at least one, to speak for `cluster`.
    pub fn new(cluster: ClusterName, authorities: impl IntoIterator<Item = Certificate>) -> Result<Self> {
        let anchors: Vec<_> =
            authorities.into_iter().map(|authority| verify::anchor(&authority)).collect::<Result<_>>()?;
        if anchors.is_empty() {
            return Err(Error::Certificate(format!("cluster {cluster} has no authority to trust")));
        }
        Ok(Self { cluster, anchors })
    }

    /// The cluster whose principals are accepted.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The principal of the certificate that a client presented in its handshake, if it is valid now.
    ///
    /// `chain` must come from a handshake that proved the possession of the key, as with
    /// the TLS configuration of a server. Call this for every call and not once for a connection, or expired
    /// certificates live on in open connections.
    pub fn verify_client(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> std::result::Result<Principal, AuthError> {
        let leaf = chain.first().ok_or_else(|| AuthError::Missing { cluster: self.cluster.clone() })?;
        verify::check(leaf, &self.anchors, Purpose::Client, unix(now))
            .map_err(|refusal| self.explain(refusal, leaf, now))?;
        let certificate = Certificate::from_der(leaf).map_err(malformed)?;
        let principal = certificate.principal().map_err(malformed)?;
        if *principal.cluster() != self.cluster {
            let named = principal.cluster();
            return Err(malformed(format!("it names cluster {named}, but {} signed it", self.cluster)));
        }
        Ok(principal)
    }

    fn explain(&self, refusal: Refusal, leaf: &CertificateDer<'_>, now: Timestamp) -> AuthError {
        let cluster = self.cluster.clone();
        match refusal {
            Refusal::Malformed(reason) => AuthError::Malformed { reason },
            Refusal::Expired(at) => AuthError::Expired { at },
            Refusal::NotYetValid(from) => AuthError::NotYetValid { from, now },
            Refusal::WrongPurpose => AuthError::WrongPurpose,
            Refusal::NotSigned => AuthError::NotSigned { cluster },
            Refusal::OtherIssuer => {
                let claimed = Certificate::from_der(leaf).ok().and_then(|leaf| leaf.claimed_cluster());
                AuthError::OtherCluster { cluster, claimed }
            }
        }
    }
}

fn malformed(reason: impl ToString) -> AuthError {
    AuthError::Malformed { reason: reason.to_string() }
}
