//! Why a migration, or a run of migrations, did not succeed.

use refit_backend::Error as StoreError;

use crate::registry::Checksum;

/// Why one migration did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The lock is no longer this server's: it writes nothing more. Another one goes on.
    #[error("this server lost the migration's lock: another server goes on")]
    LockLost,
    /// Something stored cannot be carried over.
    #[error("{key} cannot be migrated: {reason}; mend or remove it, then run `refitctl migrations apply`")]
    Item {
        /// What could not be migrated.
        key: String,
        /// Why.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a run of the outstanding migrations stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A run is going on.
    #[error("migrations are being applied already, by {by}; see `refitctl migrations ls`")]
    InFlight {
        /// The server that runs them.
        by: String,
    },
    /// The history was made by another text of the same migration.
    #[error(
        "migration {number:04} {name:?} is not the one that was applied to this store \
         ({recorded_name:?}, checksum {recorded}, here {here}): a released migration was altered or \
         reordered; run a build whose migrations are intact"
    )]
    Altered {
        /// Which one.
        number: u32,
        /// What it is called here.
        name: String,
        /// What it was called when it was applied.
        recorded_name: String,
        /// The checksum when it was applied.
        recorded: Checksum,
        /// The checksum here.
        here: Checksum,
    },
    /// The migration ran here and did not succeed; the ones after it wait.
    #[error("migration {number:04} {name:?} failed: {source}")]
    Failed {
        /// Which one.
        number: u32,
        /// What it is called.
        name: String,
        /// Why.
        source: MigrationError,
    },
    /// The server is shutting down; another one goes on.
    #[error("migrations were interrupted because this server is stopping")]
    Stopped,
    /// The history cannot be read or written.
    #[error("the migration history cannot be used: {0}")]
    Store(#[from] StoreError),
    /// A history record that this version cannot understand.
    #[error("the migration history at {key} cannot be read: {reason}")]
    History {
        /// Where.
        key: String,
        /// Why.
        reason: String,
    },
}
