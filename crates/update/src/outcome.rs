//! How a command of the updater ends: its outcome, for the status file and for the operator, or why it was not carried
//! out.

use std::io;
use std::time::Duration;

use refit_types::{ConfigError, Version};

use crate::enable::NotEnabled;
use crate::failure::StepFailed;
use crate::host::HostError;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do, and why.
    Nothing(String),
    /// Another version is active now.
    Switched {
        /// The version that was active before, if there was one.
        from: Option<Version>,
        /// The active version.
        to: Version,
    },
    /// This host refuses the version, and why. Not a failure, and not retried.
    Held(String),
    /// The update was called off before anything was switched: the control plane no longer asks this host for it.
    CalledOff {
        /// The version that was wanted.
        version: Version,
    },
    /// An update is due and begins after this delay: not all hosts begin at once, or it is tried again.
    Later(Duration),
    /// The update could not begin, for a reason that the version is not to blame for. Nothing has changed, and it is
    /// tried again after the delay for as long as it is due.
    Obstructed {
        /// The version that is due; nothing if the control plane could not be asked for it.
        version: Option<Version>,
        /// The attempt, as the control plane counts it.
        attempt: u64,
        /// What went wrong.
        failure: StepFailed,
        /// How often this attempt was tried.
        tries: u32,
        /// When it is tried again.
        delay: Duration,
    },
    /// The version cannot be used: its binaries do not run. Nothing was switched.
    Failed {
        /// The version that was wanted.
        version: Version,
        /// What went wrong.
        failure: StepFailed,
    },
    /// The update failed and was rolled back.
    Undone {
        /// The version that was tried.
        version: Version,
        /// What went wrong.
        failure: StepFailed,
    },
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The configuration cannot be read or written.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A step failed.
    #[error("{0}")]
    Step(#[from] StepFailed),
    /// No client of the control plane can be made.
    #[error("{0}")]
    Connect(HostError),
    /// The control plane did not answer.
    #[error("the control plane cannot be asked: {0}")]
    ControlPlane(HostError),
    /// A person's command needed the host during the download; nothing has changed.
    #[error("a command of an operator ended the download; nothing has changed")]
    Stopped,
    /// Updates are enabled without a control plane to ask.
    #[error("updates are enabled and no proxy is set; run `enable --proxy HOST:PORT`")]
    NoProxy,
    /// Neither a person nor a file names a control plane.
    #[error("no proxy is known: name it with --proxy, or in {config}")]
    NoProxyNamed {
        /// The agent's configuration.
        config: String,
    },
    /// There is no version to enable.
    #[error(transparent)]
    NotEnabled(#[from] NotEnabled),
    /// The disk refused.
    #[error("{what} cannot be used: {source}")]
    Disk {
        /// The file or directory.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}
