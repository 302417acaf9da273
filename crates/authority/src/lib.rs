//! The server's side of trust: the cluster's certificate authorities for TLS and SSH, what they sign, their
//! rotation, where they are stored, and the tokens by which hosts join.
//!
//! The [`Authority`] decides everything that a certificate says; of a request only the public key is used.
//! It is one record in the store ([`VersionedAuthority`]), so that all servers rotate it as one:
//! [`Authority::advance`] says what is signed and trusted in each phase. Hosts join by a token that
//! [`TokenStore`] knows. What hosts do with all this is in `refit-identity`. Nothing here reads the clock.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod authority;
mod error;
mod issue;
mod record;
mod rotation;
mod server;
mod ssh;
mod tokens;
mod validity;
mod versioned_authority;

pub use authority::Authority;
pub use error::{Error, Result};
pub use issue::{MAX_USER_TTL, MIN_TTL};
pub use record::AUTHORITY_KEY;
pub use refit_identity::HOST_TTL;
pub use rotation::{Rotation, RotationError, RotationMode};
pub use server::{AnyClientCertificate, ServerCertificate, server_config};
pub use tokens::{NewToken, StaticToken, Token, TokenError, TokenStore};
pub use validity::{AUTHORITY_YEARS, CLOCK_SKEW};
pub use versioned_authority::VersionedAuthority;

#[cfg(test)]
mod tests;
