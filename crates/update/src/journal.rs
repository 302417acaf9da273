//! `journal.json`: the switch that is under way. Written by `switch` before anything changes, removed when the switch is
//! final, and read by `rollback`.

use std::io;

use refit_types::Version;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, parent, remove_if_present, write_durably};
use crate::layout::Layout;

/// A switch that is under way. Pointer and database cannot change in one operation: the journal is durable before the
/// first of them changes, and is removed after both changes are final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The version that was active; nothing on a fresh host.
    pub from: Option<Version>,
    /// The version to activate.
    pub to: Version,
    /// How far the switch has come.
    pub step: Step,
    /// Whether there was a database, and so a backup to give back.
    pub backed_up: bool,
    /// Whether the agent ran before the switch, and is started again by a rollback.
    pub runs: bool,
}

/// How far a switch has come. The stored words are older than the names and stay: the updater of another release may
/// read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Everything is prepared. No agent of the new version has run.
    #[serde(rename = "pointing")]
    Prepared,
    /// The pointer or the database may have changed, and an agent of the new version may have run.
    #[serde(rename = "running")]
    Switching,
}

impl Journal {
    /// The stored journal; nothing if no switch is under way.
    pub fn load(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<Self>> {
        match disk.read(&layout.journal()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores it durably.
    pub fn store(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_durably(disk, &layout.journal(), &bytes, 0o600)
    }

    /// Removes it: the switch is final, or rolled back.
    pub fn clear(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        remove_if_present(disk, &layout.journal())?;
        disk.sync_dir(parent(&layout.journal()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, RealDisk};

    /// A release that rolls back may be older or newer than the one that wrote the journal.
    #[test]
    fn the_journal_of_an_older_release_is_read_and_written_alike() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path(), &Profile::refit(), None);
        std::fs::create_dir_all(layout.versions()).unwrap();
        for (word, step) in [("pointing", Step::Prepared), ("running", Step::Switching)] {
            let stored =
                format!(r#"{{"from":"1.0.0","to":"2.0.0","step":"{word}","backed_up":true,"runs":false}}"#);
            std::fs::write(layout.journal(), &stored).unwrap();
            let journal = Journal::load(&RealDisk, &layout).unwrap().unwrap();
            assert_eq!((journal.step, journal.backed_up, journal.runs), (step, true, false));
            journal.store(&RealDisk, &layout).unwrap();
            assert_eq!(std::fs::read_to_string(layout.journal()).unwrap(), stored);
        }
    }
}
