//! The file layout of a data directory, which server, agent, updater and `refitctl` share. Builds paths, does no I/O.

use std::path::{Path, PathBuf};

/// Where a host keeps what belongs to Refit, so that all of its programs find each other's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir(PathBuf);

impl DataDir {
    /// The layout below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// The control plane's embedded store.
    pub fn store(&self) -> PathBuf {
        self.0.join("backend/sqlite.db")
    }

    /// The identity by which administrators on this host speak to the control plane.
    pub fn admin_identity(&self) -> PathBuf {
        self.0.join("admin/identity.json")
    }

    /// The address at which the control plane on this host listens.
    pub fn endpoint(&self) -> PathBuf {
        self.0.join("admin/endpoint")
    }

    /// The archives that the control plane on this host serves to updaters.
    pub fn artifacts(&self) -> PathBuf {
        self.0.join("artifacts")
    }

    /// The agent's own store: its identities and its rotation state.
    pub fn agent_store(&self) -> PathBuf {
        self.0.join("proc/sqlite.db")
    }

    /// The UUID of the host, for the updater.
    pub fn host_uuid(&self) -> PathBuf {
        self.0.join("host_uuid")
    }

    /// The socket on which the agent serves its readiness.
    pub fn agent_socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }

    /// The agent's PID file.
    pub fn agent_pid(&self) -> PathBuf {
        self.0.join("agent.pid")
    }

    /// The authorities that the agent trusts, kept current for the updater.
    pub fn trust(&self) -> PathBuf {
        self.0.join("trust.pem")
    }

    /// What the updater last did.
    pub fn updater_status(&self) -> PathBuf {
        self.0.join("versions/status.json")
    }

    /// What the agent touches to wake the updater.
    pub fn updater_wake(&self) -> PathBuf {
        self.0.join("versions/wake")
    }
}
