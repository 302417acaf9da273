//! How stored things change shape while old and new servers run.
//!
//! Migrations are numbered, run in sequence by whichever server gets the lock, and never touch what
//! they migrate: they write new keys beside the old ones. [`MigratingService`] reads and writes both
//! until a later migration deletes the old ones.

mod channels;
mod error;
mod guard;
mod history;
mod lock;
mod migrating;
mod registry;
mod released;
mod reshape;
mod rollouts;
mod runner;
mod service;
mod storage_format;

pub use channels::{channels_v1, channels_v2};
pub use error::{MigrationError, RunError};
pub use guard::Guarded;
pub use history::{Record, list_history};
pub use migrating::MigratingService;
pub use registry::{Checksum, Migration, Registry};
pub use reshape::{copy_forward, retire};
pub use rollouts::{autoupdate_version_v1, cluster_maintenance_config_v1};
pub use runner::{LOCK_TTL, Outcome, Runner, Summary};
pub use service::{Alongside, Found, Listed, ResourceStore, Service, ServiceError};
pub use storage_format::StorageFormat;
