//! Why a server does not start. What goes wrong later is logged or returned to the caller.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("the data directory {path} cannot be used: {source}; name another with --data-dir", path = .path.display())]
    DataDir {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] refit_backend::Error),
    /// The cluster's authority cannot be loaded, stored or used.
    #[error(transparent)]
    Authority(#[from] refit_authority::Error),
    /// A key, certificate or name cannot be used.
    #[error(transparent)]
    Identity(#[from] refit_identity::Error),
    /// The cluster in the store is not the one that the configuration names.
    #[error(
        "the store holds the cluster {stored:?}, and the configuration names {configured:?}: \
         set cluster_name to the former, or use another store"
    )]
    OtherCluster {
        /// In the store.
        stored: String,
        /// In the configuration.
        configured: String,
    },
    /// A port cannot be bound.
    #[error("cannot listen on {address}: {source}; choose another with {flag}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
