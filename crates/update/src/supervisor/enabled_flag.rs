//! Whether the agent starts with its supervisor, stored for the next supervisor.

use std::io;
use std::path::PathBuf;

use crate::disk::{Disk, RealDisk, parent, write_durably};

/// Whether the agent starts with its supervisor: yes, unless a file exists. Only the existence of the file counts, so its
/// content cannot be corrupted.
#[derive(Debug)]
pub(super) struct EnabledFlag(pub(super) PathBuf);

impl EnabledFlag {
    pub(super) fn is_set(&self) -> bool {
        !self.0.exists()
    }

    pub(super) fn set(&self, enabled: bool) -> io::Result<()> {
        if !enabled {
            return write_durably(
                &RealDisk,
                &self.0,
                b"The agent is not started with its supervisor.\n",
                0o644,
            );
        }
        match RealDisk.remove_file(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => RealDisk.sync_dir(parent(&self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enabled_until_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let enabled = EnabledFlag(folder.path().join("supervisor.disabled"));
        assert!(enabled.is_set());
        enabled.set(true).unwrap();
        enabled.set(false).unwrap();
        assert!(!EnabledFlag(enabled.0.clone()).is_set());
        enabled.set(true).unwrap();
        assert!(enabled.is_set());
    }
}
