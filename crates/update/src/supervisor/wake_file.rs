//! The wake file, by which the agent has its updater run at once. Polled by the supervisor.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The file that the agent replaces to wake its updater, and its last known state. It is polled with `stat`, because
/// inotify misses renames and some file systems.
#[derive(Debug)]
pub(crate) struct WakeFile {
    path: PathBuf,
    seen: Option<Stamp>,
}

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl WakeFile {
    /// Changes before this do not count: an updater runs soon after a start anyway.
    pub(crate) fn new(path: PathBuf) -> Self {
        let mut wake_file = Self { path, seen: None };
        wake_file.take_change();
        wake_file
    }

    /// Whether the file was replaced since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        let stamp = std::fs::symlink_metadata(&self.path).ok().map(|found| Stamp {
            device: found.dev(),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
        });
        let has_changed = stamp.is_some() && stamp != self.seen;
        self.seen = stamp;
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replacement_counts_once_and_a_removal_never() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("wake"), folder.path().join("aside"));
        let mut wake_file = WakeFile::new(path.clone());
        assert!(!wake_file.take_change());
        for _ in 0..3 {
            std::fs::write(&aside, "attempt 1\n").unwrap();
            std::fs::rename(&aside, &path).unwrap();
            assert!(wake_file.take_change() && !wake_file.take_change());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!wake_file.take_change());
        std::fs::write(&path, "").unwrap();
        assert!(!WakeFile::new(path.clone()).take_change(), "replaced before the supervisor started");
        assert!(wake_file.take_change());
    }
}
