//! The host updater: brings one agent on one Linux host to the version that the cluster wants, proves that it
//! works, and undoes it when it does not. It may be cut off at any moment: the old or the new version is
//! complete with its own database, and the next start finishes or undoes.

pub mod archive;
mod backup;

mod config;
mod control_plane;
mod disk;
mod failure;
mod health;
mod host;
mod journal;
mod layout;
mod links;
mod lock;
mod packages;
mod probe;
mod profile;
mod service;
mod status_file;
mod supervisor;
mod switch;
mod takeover;
mod uninstall;
mod units;
mod updater;

pub use archive::{HttpsOptions, HttpsSource, InstallError, Installed, Source, SourceError, install};
pub use backup::{
    BackupNote, BackupSpec, Circumstances, IdentityFacts, Unusable, back_up, prepare, restore, usable,
};
pub use config::{Config, ConfigError};
pub use control_plane::{HttpsControlPlane, OnProgress};
pub use disk::{Disk, FileKind, RealDisk, create_dirs_durably, point_durably, write_durably};
pub use failure::{FailedStep, StepFailed};
pub use host::{Agent, Answer, Clock, Condition, ControlPlane, HostError, Service, ServiceState};
pub use journal::{Journal, Step};
pub use layout::Layout;
pub use lock::{Lock, LockError};
pub use packages::{NoPackages, SystemPackages};
pub use probe::{HostAgent, trusted_authorities};
pub use profile::{Profile, ProfileError, Readiness, UpdaterUnit};
pub use service::{NoService, Supervised, Systemd};
pub use status_file::last_status;
pub use supervisor::{Supervision, SupervisorError, TIED, Tied, supervise};
pub use switch::{
    Database, Environment, Recovery, SwitchPlan, Switched, active_version, database_for, is_complete,
    next_try,
};
pub use uninstall::is_installed;
pub use updater::{Outcome, Packages, UpdateError, Updater, Urgency};
