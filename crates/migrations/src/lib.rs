//! How stored things change their format while old and new servers run.
//!
//! Migrations are numbered, run in sequence by whichever server gets the lock, and never touch what
//! they migrate: they write new keys beside the old ones. [`refit_resources::MigratingStore`] reads and
//! writes both until a later migration deletes the old ones.

mod error;
mod guard;
mod history;
mod lock;
mod outcomes;
mod registry;
mod released;
mod reshape;
mod runner;

pub use error::{MigrationError, RunError};
pub use guard::Guarded;
pub use history::{Record, list_history};
pub use registry::{Checksum, Migration, Registry};
pub use reshape::{copy_forward, retire};
pub use runner::{LOCK_TTL, Outcome, Runner, Summary};

// Released migrations name their formats as items of this crate, and are never changed.
use refit_resources::{channels_v1, channels_v2};
