//! The errors of the [`Backend`](crate::Backend) contract: the same for every store, so that callers match on what to
//! do next and not on the store.

use std::path::PathBuf;

use crate::{Key, LeaseId, Revision};

/// Why a store operation failed. Each variant calls for a different reaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `create` found the key taken.
    #[error("{key} exists already")]
    AlreadyExists {
        /// The key that was to be created.
        key: Key,
    },
    /// `update` or `delete` found no such key.
    #[error("{key} does not exist")]
    NotFound {
        /// The key that was to be changed.
        key: Key,
    },
    /// A compare of a transaction did not hold: somebody else wrote in between. Nothing was written.
    #[error("{key} was changed by someone else meanwhile")]
    Conflict {
        /// The first key whose compare did not hold.
        key: Key,
    },
    /// The lease expired or was revoked.
    #[error("lease {0} has expired or was revoked")]
    LeaseNotFound(LeaseId),
    /// The watch can no longer give every event: reload and watch again.
    #[error(
        "the watch fell behind: events after revision {after} are no longer kept; read again and watch from there"
    )]
    WatchLost {
        /// The last revision that the watcher had seen.
        after: Revision,
    },
    /// A key, range or transaction that no backend takes.
    #[error("{0}")]
    Invalid(String),
    /// More than the portable limits allow.
    #[error("{0}")]
    TooLarge(String),
    /// The store could not be reached, or did not answer in time. A write may have happened.
    #[error("{store} cannot be reached: {reason}")]
    Unavailable {
        /// The store, without credentials.
        store: String,
        /// What went wrong.
        reason: String,
    },
    /// The store refused the credentials it was given.
    #[error("{store} refused the credentials: {reason}")]
    Refused {
        /// The store, without credentials.
        store: String,
        /// What the store said.
        reason: String,
    },
    /// Another process has the store open.
    #[error("{path} is in use by another server; stop that one first, or use a data directory of its own for each", path = .0.display())]
    Locked(PathBuf),
    /// The file is something else.
    #[error("{path} is not a Refit store: {reason}; move it away, or name another data directory", path = .path.display())]
    NotAStore {
        /// The file that was opened.
        path: PathBuf,
        /// How that was found out.
        reason: String,
    },
    /// The address of a store cannot be understood.
    #[error("the store address {0}")]
    BadAddress(String),
    /// The store itself failed: full disk, damaged file, a bug.
    #[error("{store} failed: {reason}")]
    Failed {
        /// The store, without credentials.
        store: String,
        /// What it reported.
        reason: String,
    },
    /// The backend was shut down.
    #[error("the store is closed")]
    Closed,
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
