//! The signals that the agent obeys.

use std::io;

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the service manager, the updater or a person asks of the agent by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGTERM or SIGINT: finish what is under way, and end. A second one means at once.
    Drain,
    /// SIGHUP: re-execute the binary at the path that the agent was started by.
    Reload,
}

/// The signals that the agent obeys.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on none of them ends the process. To be called early: one that was sent while the agent
    /// re-executed has been waiting for this.
    pub fn listen() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        };
        let mut blocked = SigSet::empty();
        blocked.add(nix::sys::signal::Signal::SIGHUP);
        blocked.thread_unblock()?;
        Ok(signals)
    }

    /// Waits for the next; an end goes before a reload. Nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => SignalRequest::Drain,
            Some(()) = self.interrupt.recv() => SignalRequest::Drain,
            Some(()) = self.hangup.recv() => SignalRequest::Reload,
            else => std::future::pending().await,
        }
    }
}
