//! What can go wrong with a stored resource.

use refit_backend::Error as StoreError;

/// Why a resource could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// What is stored cannot be understood.
    #[error("what is stored at {key} cannot be read: {reason}")]
    Unreadable {
        /// Where.
        key: String,
        /// Why.
        reason: String,
    },
    /// Creating something that exists.
    #[error("{name:?} exists already")]
    AlreadyExists {
        /// Its name.
        name: String,
    },
    /// Changing something that does not exist.
    #[error("{name:?} does not exist")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// Somebody else wrote since the revision that the change was made from.
    #[error("{name:?} was changed by someone else meanwhile; get it again and repeat the change")]
    Conflict {
        /// Its name.
        name: String,
    },
    /// What is stored forbids the change.
    #[error("{0}")]
    Refused(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
