//! The agent on a host: its identity and its talk with the control plane ([`run`]), what it is told to do
//! ([`Settings`]), what it says of its host ([`LabelSource`], [`UpdaterReport`]), and how it lives as a
//! process that the updater and the service manager can rely on ([`PidFile`], [`StartedBy`], [`Signals`],
//! [`ReadinessSocket`], [`Notify`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod durable;
mod following;

mod host_uuid;
mod joining;
mod labels;
mod notify;
mod pid_file;
mod pulse;
mod reach;
mod readiness;
mod reexec;
mod run;
mod signals;
mod started_by;
mod talk_error;
mod trust_file;
mod updater_bell;
mod updater_status;
mod wire;

pub use config::{
    AgentConfig, CommandSettings, ConfigError, DEFAULT_PORT, LONGEST_PERIOD, NodeName, ProxyAddress,
    SHORTEST_PERIOD, Settings, Token,
};
pub use host_uuid::{HostUuidError, read_or_create_host_uuid};
pub use labels::{COMMAND_TIME_LIMIT, LabelCommand, LabelSource, MAX_OUTPUT_BYTES};
pub use notify::Notify;
pub use pid_file::{PidFile, PidFileError};
pub use reach::{
    Contact, DEFAULT_UNREACHABLE_EXIT, EXIT_UNREACHABLE, LONGEST_BACKOFF, NextTry, contact, first_server,
    next_try,
};
pub use readiness::{AskError, Readiness, ReadinessSocket, SocketError, ask};
pub use reexec::{ReexecError, reexec};
pub use run::{End, RunError, run};
pub use signals::{Ask, Signals};
pub use started_by::{NotStartedByPath, StartedBy};
pub use talk_error::TalkError;
pub use trust_file::{TrustFile, TrustFileError};
pub use updater_status::{UpdaterReport, watch_updater_status};
