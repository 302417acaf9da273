//! Wakes the host's updater by writing the file that its path unit watches.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refit_identity::atomic_file::{self, PRIVATE};

/// An updater that was woken and did nothing is woken again after this long, which is how often it checks by
/// itself.
const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// Wakes this host's updater by touching the file that its path unit watches.
#[derive(Debug)]
pub(crate) struct UpdaterWake {
    path: PathBuf,
    last: Option<(u64, Instant)>,
}

impl UpdaterWake {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Wakes the updater for that attempt, once; whether it has been woken for it. Does nothing where no
    /// updater is installed.
    pub(crate) fn wake(&mut self, attempt: u64, now: Instant) -> io::Result<bool> {
        if !self.path.parent().is_some_and(|versions| versions.is_dir()) {
            return Ok(false);
        }
        let is_recent =
            self.last.is_some_and(|(last, at)| last == attempt && now.duration_since(at) < REPEAT_AFTER);
        if !is_recent {
            let contents = format!("attempt {attempt}\n");
            atomic_file::replace(&self.path, contents.as_bytes(), PRIVATE)?;
            self.last = Some((attempt, now));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use refit_types::DataDir;

    use super::*;

    #[test]
    fn an_updater_is_woken_once_for_each_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let path = DataDir::new(directory.path()).updater_wake();
        let (mut wake, start) = (UpdaterWake::new(path.clone()), Instant::now());
        assert!(!wake.wake(1, start).unwrap(), "no updater is installed");
        fs::create_dir(path.parent().unwrap()).unwrap();
        assert!(wake.wake(1, start).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "attempt 1\n");
        fs::remove_file(&path).unwrap();
        assert!(wake.wake(1, start + Duration::from_secs(30)).unwrap());
        assert!(!path.exists(), "it is not woken again for the same attempt at every heartbeat");
        assert!(wake.wake(1, start + REPEAT_AFTER).unwrap() && path.exists());
        assert!(wake.wake(2, start + REPEAT_AFTER).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "attempt 2\n");
    }
}
