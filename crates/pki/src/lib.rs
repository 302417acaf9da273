//! Who may speak: the cluster's certificate authority, the identities it signs, and the checks that
//! tell whose call a server is looking at.
//!
//! A holder makes its own key and sends a [`SigningRequest`]; the [`Authority`] decides everything that
//! the certificate says. A server asks [`Trust`] for the [`Principal`] behind each call. Nothing here
//! reads the clock: the time is always an argument (but for TLS handshakes, where rustls brings it).
//!
//! Hosts join by a token that [`TokenStore`] knows, and keep an [`Identity`] for each role in an
//! [`IdentityBackend`]. When an operator rotates the authority, [`Authority::advance`] says what is signed
//! and trusted in each [`Phase`], and [`next_step`] what an agent does to follow.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent_rotation;
mod agent_state;
mod authority;
mod certificate;
mod client;
pub mod conformance;
mod error;
mod files;
mod identities;
mod identity;
mod identity_backend;
mod issue;
mod json;
mod key;
mod memory_identities;
mod names;
mod pin;
mod principal;
mod record;
mod request;
mod role;
mod rotation;
mod server;
mod sqlite_identities;
mod ssh;
mod time;
mod tokens;
mod trust;
mod verify;
mod versioned_authority;

pub use agent_rotation::{Authorities, Step, StoredIdentities, next_step};
pub use agent_state::{AgentState, Slot};
pub use authority::Authority;
pub use certificate::Certificate;
pub use client::{ServerRefused, client_config, pinned_client_config, public_client_config};
pub use error::{Error, Result};
pub use files::write_private_file;
pub use identities::Identities;
pub use identity::Identity;
pub use identity_backend::{IdentityBackend, IdentityKey, IdentityStoreError, SharedIdentityBackend};
pub use issue::{HOST_TTL, HostCertificates, MAX_USER_TTL, MIN_TTL, SERVER_NAME};
pub use key::PrivateKey;
pub use memory_identities::MemoryIdentities;
pub use names::{ClusterName, NameError, ServerId, UserName};
pub use pin::CaPin;
pub use principal::{Principal, PrincipalError};
pub use record::AUTHORITY_KEY;
pub use request::SigningRequest;
pub use role::{Role, Roles, SystemRole};
pub use rotation::{Phase, Rotation, RotationError, RotationMode};
pub use server::{AnyClientCertificate, ServerCertificate, server_config};
pub use sqlite_identities::{OpenedIdentities, SetAside, SqliteIdentities};
pub use time::{AUTHORITY_YEARS, CLOCK_SKEW, renew_after};
pub use tokens::{NewToken, StaticToken, Token, TokenError, TokenStore};
pub use trust::{AuthError, Trust};
pub use versioned_authority::VersionedAuthority;

#[cfg(test)]
mod tests;
