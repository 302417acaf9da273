//! What can go wrong with keys, certificates, identities and the files that hold them.

use std::io;
use std::path::PathBuf;

use crate::{NameError, PrincipalError};

/// What can go wrong with keys and certificates. No variant ever carries a private key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name or role that is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A certificate whose holder cannot be determined.
    #[error("the certificate does not say whom it speaks for: {0}")]
    Principal(#[from] PrincipalError),
    /// Something that is not the certificate that was expected.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
    /// A request that no certificate is signed for.
    #[error("the certificate signing request cannot be used: {0}")]
    Request(String),
    /// Text that is not a private key; what it was is not repeated.
    #[error("the private key cannot be read: expected one PEM block with a PKCS#8 or EC key")]
    PrivateKey,
    /// A key and a certificate that do not belong together.
    #[error("the private key does not belong to the certificate; use the two that were made together")]
    KeyMismatch,
    /// An SSH certificate that is none, or not one over the key that it came with.
    #[error("the SSH certificate cannot be used: {0}")]
    SshCertificate(&'static str),
    /// Text that is not an identity.
    #[error("the identity cannot be used: {0}")]
    Identity(String),
    /// Text that does not say how far an agent has followed a rotation.
    #[error("the state of the rotation cannot be used: {0}")]
    State(String),
    /// A file that is not an identity.
    #[error("the identity in {} cannot be used: {reason}", .path.display())]
    IdentityFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A private file that others can read.
    #[error(
        "{} can be read by others (its mode is {mode:04o}), and so could the private key in it; run: chmod 600 {}",
        .path.display(), crate::private_file::for_shell(.path)
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file system did not do as asked.
    #[error("{} cannot be {action}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried, as in "read".
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The TLS library refused a configuration.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The cryptographic library failed.
    #[error("{0} failed in the cryptographic library; this is an error of the machine or of Refit")]
    Crypto(&'static str),
}

/// The result of whatever deals with keys and certificates.
pub type Result<T, E = Error> = std::result::Result<T, E>;
