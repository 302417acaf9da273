//! The host updater: brings the agent of one Linux host to the version that the cluster wants, checks that it is
//! healthy, and rolls back if it is not. It may be killed at any moment: the old or the new version is complete with
//! its own database, and the next start finishes the switch or rolls it back.

mod agent_run;
pub mod archive;
mod backup;
mod clock;
mod config;
mod control_plane;
mod disk;
mod disk_state;
mod enable;
mod environment;
mod failure;
mod failure_log;
mod health;
mod host;
mod journal;
mod layout;
mod leftovers;
mod links;
mod lock;
mod lock_request;
mod masking;
mod outcome;
mod packages;
mod plan;
mod probe;
mod profile;
mod rollback;
mod service;
mod status_file;
mod supervisor;
mod switch;
mod takeover;
mod told_attempt;
mod uninstall;
mod units;
mod unproved;
mod updater;
mod versions;

pub use agent_run::{RunEnd, RunMark};
pub use archive::{
    Download, HttpsOptions, HttpsSource, InstallError, Installed, Interrupt, Patience, Source, SourceError,
    TransferLimits, install,
};
pub use backup::{
    BackupError, BackupNote, BackupSpec, IdentityFacts, RestoreConditions, back_up, check_backup,
    prepare_restore, restore,
};
pub use clock::SystemClock;
pub use config::Config;
pub use control_plane::{HttpsControlPlane, OnProgress};
pub use disk::{Disk, FileKind, RealDisk, create_dirs_durably, point_durably, write_durably};
pub use enable::NotEnabled;
pub use environment::Environment;
pub use failure::{FailedStep, StepFailed, UnknownStep};
pub use host::{
    Agent, Answer, Clock, Condition, Connector, ControlPlane, Endpoint, FetchError, Guard, HostError,
    Manager, Moment, Packages, ProbeError, Service, ServiceState, StartId,
};
pub use journal::{Journal, Step};
pub use layout::Layout;
pub use lock::{Lock, LockError};
pub use lock_request::LockRequest;
pub use outcome::{Outcome, UpdateError};
pub use packages::{NoPackages, SystemPackages};
pub use plan::Urgency;
pub use probe::{HostAgent, trusted_authorities};
pub use profile::{Profile, ProfileError, Readiness, UpdaterUnit};
pub use rollback::{Recovered, Recovery};
pub use service::{DetectedService, NoService, Systemd};
pub use status_file::last_status;
pub use supervisor::{CHILD_COMMAND, ChildProgram, Supervision, SupervisorError, supervise};
pub use switch::{Database, SwitchPlan, Switched, database_for};
pub use uninstall::is_installed;
pub use unproved::{Disproved, Unproved};
pub use updater::Updater;
pub use versions::{active_version, is_complete};
