//! The seams of the updater beside the disk: the service manager, the agent, the system's packages, the clock, and the
//! control plane. Implemented by `service`, `probe`, `packages`, `control_plane` and the program; by fakes in tests.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::{BootMoment, Version};

use crate::{IdentityFacts, RunEnd, RunMark};

/// What the host could not do, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// Why a binary did not report its version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It does not work here: it cannot be executed, crashes, ends with an error, hangs, or reports nothing.
    #[error("{0}")]
    Unusable(String),
    /// It was killed from outside, or the host has no room for another process. It may well work.
    #[error("{0}")]
    Interrupted(String),
}

/// The state of the agent's service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// It runs.
    Running,
    /// It should run, but fails: it starts, ends and is started again.
    Failing,
    /// The service manager is about to start it, and waits for something else first, as at boot.
    Queued,
    /// It does not run, and nothing is about to start it.
    Stopped,
}

/// Something that is kept from happening until this is dropped.
pub type Guard = Box<dyn Debug + Send>;

/// Whether a service manager runs the agent.
#[derive(Debug)]
pub enum Manager {
    /// One does: it is asked, and started and stopped by requests.
    Present,
    /// None does, and none can begin to before the guard is dropped.
    Absent(Guard),
}

/// Starts and stops the agent, and runs its updater: a service manager.
pub trait Service: Debug + Send + Sync {
    /// Whether there is a service manager now. Asked right before the first change of a switch, because a supervisor may
    /// have started since the command did.
    fn manager(&self) -> Result<Manager, HostError> {
        Ok(Manager::Present)
    }

    /// Whether the agent starts at boot.
    fn is_enabled(&self) -> Result<bool, HostError>;

    /// Sets whether the agent starts at boot.
    fn set_enabled(&self, enabled: bool) -> Result<(), HostError>;

    /// Its state now.
    fn state(&self) -> Result<ServiceState, HostError>;

    /// Asks the agent to re-execute its binary.
    fn reload(&self) -> Result<(), HostError>;

    /// Stops the agent, and returns when it has ended.
    fn stop(&self) -> Result<(), HostError>;

    /// Starts the agent without waiting until it is ready.
    fn start(&self) -> Result<(), HostError>;

    /// Reads the units again after they have changed.
    fn refresh(&self) -> Result<(), HostError>;

    /// Starts or stops the units that run the updater on schedule.
    fn set_updates(&self, on: bool) -> Result<(), HostError>;

    /// Whether a command runs as a part of the agent's start. `start` is how the service manager calls the start of which the
    /// command is a part, if it is a part of any.
    fn is_agent_start(&self, _start: Option<&str>) -> bool {
        true
    }

    /// The moment before the agent is started or reloaded; nothing if the service manager cannot tell one run from another.
    fn mark_run(&self) -> Option<RunMark> {
        None
    }

    /// How the agent has ended since then, if it has.
    fn end_since(&self, _mark: &RunMark) -> Option<RunEnd> {
        None
    }

    /// The last lines that the agent has written since then, oldest first.
    fn lines_since(&self, _mark: &RunMark) -> Vec<String> {
        Vec::new()
    }

    /// Has the updater run soon, outside of its schedule, without waiting for it.
    fn request_update(&self) -> Result<(), HostError> {
        Ok(())
    }
}

/// Tells one start of an agent from others, and from a re-execution under the same process id. Only compared for
/// equality: the clock of an agent says nothing to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartId(pub String);

/// What a running agent reports of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its version.
    pub version: Version,
    /// Which start of the agent this is.
    pub start: StartId,
    /// Whether it is connected to the control plane.
    pub connected: bool,
    /// Why not, if it reports that.
    pub reason: Option<String>,
}

/// The agent that is managed.
pub trait Agent: Debug + Send + Sync {
    /// Runs a binary and returns the version that it reports.
    fn version_of(&self, binary: &Path) -> Result<Version, ProbeError>;

    /// What the running agent reports; nothing if none answers.
    fn condition(&self) -> Option<Condition>;

    /// Keeps agents from starting until the guard is dropped; an error if one runs.
    fn lock_out(&self) -> Result<Guard, HostError>;

    /// What is known of the identity in the agent's database.
    fn identity(&self) -> IdentityFacts;

    /// The issuers that the agent trusts now.
    fn trusted_issuers(&self) -> Vec<String>;
}

/// The clocks of the updater.
pub trait Clock: Debug + Send + Sync {
    /// The wall clock, for what is stored and shown. It may jump, so nothing is measured by it.
    fn now(&self) -> Timestamp;

    /// The time since the host's boot, with the time that it was suspended. It never jumps.
    fn uptime(&self) -> Duration;

    /// The time that the host has run since its boot: an agent does not start while its host is suspended.
    fn awake(&self) -> Duration {
        self.uptime()
    }

    /// What tells this boot from others.
    fn boot_id(&self) -> String;

    /// Waits.
    fn sleep(&self, length: Duration);

    /// Now, by both clocks.
    fn moment(&self) -> Moment {
        let since_boot = BootMoment { boot_id: self.boot_id(), seconds: self.uptime().as_secs() };
        Moment { wall: self.now(), since_boot }
    }
}

/// A moment by both clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// By the wall clock.
    pub wall: Timestamp,
    /// By the clock that counts from the boot.
    pub since_boot: BootMoment,
}

/// The system's package manager, as far as it manages the same agent.
pub trait Packages: Debug + Send + Sync {
    /// Whether the package is installed.
    fn is_installed(&self, package: &str) -> Result<bool, HostError>;

    /// Removes and purges the package, but keeps the agent's configuration and data.
    fn purge(&self, package: &str) -> Result<(), HostError>;
}

/// Where the control plane is, and how it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `HOST[:PORT]`.
    pub proxy: String,
    /// Where archives are, in the order in which they are tried; if none is named, at the control plane.
    pub base_urls: Vec<String>,
    /// The pin of the cluster's CA, beside the system's authorities and the agent's trust file.
    pub ca_pin: Option<String>,
}

/// Makes clients of a control plane. A seam of its own, so that only commands that ask the control plane depend on
/// trusted authorities and a TLS configuration.
pub trait Connector {
    /// The control plane that the agent's own configuration names, if it names one.
    fn default_proxy(&self) -> Result<Option<String>, HostError>;

    /// A client of that control plane; nothing is asked yet.
    fn connect(&self, endpoint: &Endpoint) -> Result<Box<dyn ControlPlane + '_>, HostError>;
}

/// A control plane.
pub trait ControlPlane: Debug + Send + Sync {
    /// What this host should run, and whether to go there now.
    fn find(&self) -> Result<Answer, HostError>;

    /// What a host should run that has just come: asked without this host's UUID.
    fn find_for_new_host(&self) -> Result<Answer, HostError>;

    /// Downloads a version and unpacks it; it is complete on the disk when this returns.
    fn fetch(&self, answer: &Answer) -> Result<(), FetchError>;
}

/// Why a version was not downloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A person's command needs the host.
    #[error("a command of an operator ended the download")]
    Stopped,
    /// It failed.
    #[error(transparent)]
    Failed(#[from] HostError),
}

/// The answer to `find`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The version to run.
    pub version: Version,
    /// The edition of it.
    pub edition: refit_types::Edition,
    /// Whether to go there now.
    pub auto_update: bool,
    /// Over how many seconds the start is spread.
    pub jitter_seconds: u32,
    /// The attempt, as the control plane counts it; 0 if it does not.
    pub attempt: u64,
    /// Why a host that is not known should not install the version, in a word: its rollout is `halted` or `paused`, and no
    /// other has ended well.
    pub withheld: Option<String>,
}
