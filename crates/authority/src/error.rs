//! What can go wrong when the cluster's authority is loaded, stored or signs.

use std::time::Duration;

use jiff::Timestamp;
use refit_backend::Key;
use refit_identity::ClusterName;

use crate::validity::in_words;

/// Why the authority could not be loaded, stored, or used to sign. No variant ever carries a private key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key, a certificate or a name that cannot be used.
    #[error(transparent)]
    Identity(#[from] refit_identity::Error),
    /// A certificate was asked for that would live too short or too long.
    #[error("a certificate cannot last {}: {}", in_words(.asked), bounds(.min, .max))]
    Ttl {
        /// What was asked for.
        asked: Duration,
        /// The shortest that makes sense.
        min: Duration,
        /// The longest allowed, where there is a limit.
        max: Option<Duration>,
    },
    /// The CA can sign nothing any more.
    #[error("the certificate authority of cluster {cluster} ended at {at}: rotate it to go on")]
    AuthorityExpired {
        /// Whose CA.
        cluster: ClusterName,
        /// When it ended.
        at: Timestamp,
    },
    /// A time that no certificate can hold.
    #[error("no certificate can be made at {0}: set the clock of this machine")]
    Clock(Timestamp),
    /// What is stored for the CA is not a CA.
    #[error(
        "the certificate authority stored at {key} cannot be used: {reason}; \
         restore the store from a backup, as a new authority would shut out every agent"
    )]
    Record {
        /// Where it is stored.
        key: Key,
        /// What is wrong with it.
        reason: String,
    },
    /// Another server was faster: what was to be stored follows from something that is no longer so.
    #[error("another server has changed the certificate authority in the meantime: load it again")]
    Conflict,
    /// The store did not do as asked.
    #[error("the certificate authority cannot be loaded or stored: {0}")]
    Store(#[from] refit_backend::Error),
    /// The TLS library refused a configuration.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The cryptographic library failed.
    #[error("{0} failed in the cryptographic library; this is an error of the machine or of Refit")]
    Crypto(&'static str),
}

/// The result of whatever deals with the cluster's authority.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn bounds(min: &Duration, max: &Option<Duration>) -> String {
    match max {
        Some(max) => format!("expected {} to {}", in_words(min), in_words(max)),
        None => format!("expected at least {}", in_words(min)),
    }
}
