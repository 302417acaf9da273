use std::io;

use refit_types::Version;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, parent, write_durably};
use crate::layout::Layout;

/// What the updater is in the middle of. Pointer and database are two things: this is durable before the first
/// of them changes, and gone after both have settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// What was active; nothing on a fresh host.
    pub from: Option<Version>,
    /// What is to be active.
    pub to: Version,
    /// How far it has come.
    pub step: Step,
    /// Whether there was a database, which is now also beside what is being left.
    pub backed_up: bool,
    /// Whether the agent is to run afterwards: whoever undoes this may find it stopped on the way.
    pub runs: bool,
}

/// How far a switch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The pointer may have moved. No agent of the new version has run.
    Pointing,
    /// An agent of the new version may have run, or the database may have been replaced.
    Running,
}

impl Journal {
    /// What is stored, if a switch is under way.
    pub fn load(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<Self>> {
        match disk.read(&layout.journal()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes it durable.
    pub fn store(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_durably(disk, &layout.journal(), &bytes, 0o600)
    }

    /// The switch is over.
    pub fn clear(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        crate::backup::remove_if_there(disk, &layout.journal())?;
        disk.sync_dir(parent(&layout.journal()))
    }
}
