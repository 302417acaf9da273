//! Who may speak: the cluster's certificate authority, the identities it signs, and the checks that
//! tell whose call a server is looking at.
//!
//! A holder makes its own key and sends a [`SigningRequest`]; the [`Authority`] decides everything that
//! the certificate says. A server asks [`Trust`] for the [`Principal`] behind each call. Nothing here
//! reads the clock: the time is always an argument (but for TLS handshakes, where rustls brings it).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod authority;
mod certificate;
mod client;
mod error;
mod files;
mod identity;
mod issue;
mod json;
mod key;
mod leaf;
mod names;
mod pin;
mod principal;
mod record;
mod request;
mod role;
mod server;
mod time;
mod trust;

pub use authority::Authority;
pub use certificate::Certificate;
pub use client::{ServerRefused, client_config, pinned_client_config};
pub use error::{Error, Result};
pub use files::write_private_file;
pub use identity::Identity;
pub use issue::{MAX_USER_TTL, MIN_TTL, SERVER_NAME};
pub use key::PrivateKey;
pub use names::{ClusterName, NameError, ServerId, UserName};
pub use pin::CaPin;
pub use principal::{Principal, PrincipalError};
pub use record::TLS_AUTHORITY_KEY;
pub use request::SigningRequest;
pub use role::{Role, Roles, SystemRole};
pub use server::{AnyClientCertificate, ServerCertificate, server_config};
pub use time::{AUTHORITY_YEARS, CLOCK_SKEW};
pub use trust::{AuthError, Trust};

#[cfg(test)]
mod tests;
