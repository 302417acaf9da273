//! The agent on a host: its identity and its connection to the control plane ([`run`]), its configuration
//! ([`Settings`]), what it reports of its host ([`LabelSource`], [`UpdaterReport`]), and how it behaves as a
//! process that the updater and the service manager can rely on ([`PidFile`], [`ExecPath`], [`Signals`],
//! [`ReadinessSocket`], [`Notify`]).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod connection_loop;
mod convert;
mod exec_path;
mod heartbeat_stream;
mod host_uuid;
mod join;
mod labels;
mod notify;
mod pid_file;
mod platform;
mod readiness;
mod reconnect;
mod reexec;
mod rotation_client;
mod rpc_error;
mod run;
mod signals;
mod trust_file;
mod updater_status;
mod updater_wake;

pub use config::{
    AgentConfig, CommandSettings, DEFAULT_PORT, LONGEST_PERIOD, NodeName, ProxyAddress, SHORTEST_PERIOD,
    Settings, Token,
};
pub use exec_path::{ExecPath, ExecPathError};
pub use host_uuid::{HostUuidError, read_or_create_host_uuid};
pub use labels::{COMMAND_TIME_LIMIT, LabelCommand, LabelSource, MAX_OUTPUT_BYTES};
pub use notify::Notify;
pub use pid_file::{PidFile, PidFileError};
pub use readiness::{Readiness, ReadinessError, ReadinessSocket, SocketError, query_readiness};
pub use reconnect::{
    Contact, DEFAULT_UNREACHABLE_EXIT, EXIT_UNREACHABLE, LONGEST_BACKOFF, NextTry, SHORTEST_UNREACHABLE_EXIT,
    contact, first_server, next_try,
};
pub use reexec::{ReexecError, reexec};
pub use rpc_error::RpcError;
pub use run::{End, RunError, run};
pub use signals::{SignalRequest, Signals};
pub use trust_file::{TrustFile, TrustFileError};
pub use updater_status::{UpdaterReport, watch_updater_status};
