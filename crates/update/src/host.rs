//! What the updater needs of the host beside its disk: the service manager, the agent itself, and time.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::Version;

use crate::IdentityFacts;

/// Something that the host could not do, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// How the agent's service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// It runs.
    Running,
    /// It should, and does not get there: it starts, ends and is started again.
    Failing,
    /// Nobody wants it to run now.
    Stopped,
}

/// Who starts and stops the agent, and wakes its updater.
pub trait Service: Debug + Send + Sync {
    /// Whether the agent is to run from the next boot on.
    fn is_enabled(&self) -> Result<bool, HostError>;

    /// Has it run, or not, from the next boot on.
    fn set_enabled(&self, enabled: bool) -> Result<(), HostError>;

    /// How it stands now.
    fn state(&self) -> Result<ServiceState, HostError>;

    /// Asks the agent to become what is at the path that it was started by.
    fn reload(&self) -> Result<(), HostError>;

    /// Stops it, and returns when it is gone.
    fn stop(&self) -> Result<(), HostError>;

    /// Has it started, without a wait for it to be ready.
    fn start(&self) -> Result<(), HostError>;

    /// Reads the units again after they have changed.
    fn refresh(&self) -> Result<(), HostError>;

    /// Has the updater run by itself from now on, or no longer.
    fn set_updates(&self, on: bool) -> Result<(), HostError>;
}

/// How an agent that runs says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What runs.
    pub version: Version,
    /// When it began to run.
    pub started_at: Timestamp,
    /// Whether the control plane answers it.
    pub connected: bool,
    /// Why not, if it says so.
    pub reason: Option<String>,
}

/// The agent, as far as it can be asked.
pub trait Agent: Debug + Send + Sync {
    /// What a binary says its version is, when it is run.
    fn version_of(&self, binary: &Path) -> Result<Version, HostError>;

    /// How the agent that runs now is; nothing if none answers.
    fn condition(&self) -> Option<Condition>;

    /// What is known of the identity in the agent's database.
    fn identity(&self) -> IdentityFacts;

    /// The issuers that the agent trusts now.
    fn trusted_issuers(&self) -> Vec<String>;
}

/// Time, as the updater sees it.
pub trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Waits.
    fn sleep(&self, length: Duration);
}

/// What the control plane says, and what it has to give.
pub trait ControlPlane: Debug + Send + Sync {
    /// What this host should run, and whether to go there now.
    fn find(&self) -> Result<Answer, HostError>;

    /// Brings a version onto the disk, complete.
    fn fetch(&self, answer: &Answer) -> Result<(), HostError>;
}

/// What `find` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What to run.
    pub version: Version,
    /// Which build of it.
    pub edition: refit_types::Edition,
    /// Whether to go there now.
    pub auto_update: bool,
    /// Over how many seconds to spread that.
    pub jitter_seconds: u32,
    /// The attempt, as the control plane counts it; 0 where it does not.
    pub attempt: u64,
}
