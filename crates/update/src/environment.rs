//! The seams that a switch and its rollback work through. There is no control plane among them: a host must be able
//! to roll back without a network, without trusted authorities and without a TLS configuration.

use crate::disk::Disk;
use crate::host::{Agent, Clock, Service};
use crate::layout::Layout;
use crate::profile::Profile;

/// The host of one agent, as far as the updater can change or ask it.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// Every path that the updater uses.
    pub layout: &'a Layout,
    /// The agent that is managed.
    pub profile: &'a Profile,
    /// Starts and stops the agent.
    pub service: &'a dyn Service,
    /// Answers for the agent that runs.
    pub agent: &'a dyn Agent,
    /// The time.
    pub clock: &'a dyn Clock,
}
