//! The host's side of trust: private keys, certificates and the identities made of them, where an agent
//! keeps them, how it follows a rotation of the cluster's authorities, and whom it believes over TLS.
//!
//! A holder makes its own [`PrivateKey`] and sends a signing request; the server's authority
//! (`refit-authority`) decides everything that the certificate says. An agent keeps an [`Identity`] for
//! each role in an [`IdentityBackend`], and asks [`next_step`] what to do when the authorities rotate.
//! [`Trust`] tells the [`Principal`] behind a certificate.
//!
//! This crate knows no store of the control plane: agents and updaters link it. Nothing here reads the
//! clock: the time is always an argument (but for TLS handshakes, where rustls brings it).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent_rotation;
mod agent_state;
pub mod atomic_file;
mod certificate;
mod client;
pub mod conformance;
mod error;
mod identities;
mod identity;
mod identity_backend;
mod key;
mod memory_identities;
mod names;
mod phase;
mod pin;
mod principal;
mod private_file;
mod renewal;
mod request;
mod role;
pub mod secret_json;
mod sqlite_identities;
pub mod ssh_certificate;
mod trust;
mod verify;

pub use agent_rotation::{Authorities, Step, StoredIdentities, next_step};
pub use agent_state::{AgentState, IdentitySlot};
pub use certificate::{Certificate, HostCertificates};
pub use client::{SERVER_NAME, ServerRefused, client_config, pinned_client_config, public_client_config};
pub use error::{Error, Result};
pub use identities::Identities;
pub use identity::Identity;
pub use identity_backend::{IdentityBackend, IdentityKey, IdentityStoreError, SharedIdentityBackend};
pub use key::PrivateKey;
pub use memory_identities::MemoryIdentities;
pub use names::{ClusterName, NameError, ServerId, UserName};
pub use phase::Phase;
pub use pin::CaPin;
pub use principal::{Principal, PrincipalError};
pub use private_file::write_private_file;
pub use renewal::{HOST_TTL, renew_after};
pub use request::SigningRequest;
pub use role::{Role, Roles, SystemRole};
pub use sqlite_identities::{OpenedIdentities, QuarantinedFile, SqliteIdentities};
pub use trust::{AuthError, Trust};

#[cfg(test)]
mod tests;
