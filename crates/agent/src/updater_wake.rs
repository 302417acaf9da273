use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// An updater that was woken and did nothing is woken again after this long, as often as it would look by
/// itself.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

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

    /// Rings for that attempt, once; whether it has been rung for it. Only where an updater is installed.
    pub(crate) fn ring(&mut self, attempt: u64, now: Instant) -> io::Result<bool> {
        if !self.path.parent().is_some_and(|versions| versions.is_dir()) {
            return Ok(false);
        }
        let rung =
            self.last.is_some_and(|(last, at)| last == attempt && now.duration_since(at) < AGAIN_AFTER);
        if !rung {
            refit_identity::write_private_file(&self.path, format!("attempt {attempt}\n").as_bytes())
                .map_err(io::Error::other)?;
            self.last = Some((attempt, now));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_updater_is_woken_once_for_each_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("versions/wake");
        let (mut bell, start) = (UpdaterWake::new(path.clone()), Instant::now());
        assert!(!bell.ring(1, start).unwrap(), "nobody is there to be woken");
        fs::create_dir(path.parent().unwrap()).unwrap();
        assert!(bell.ring(1, start).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "attempt 1\n");
        fs::remove_file(&path).unwrap();
        assert!(bell.ring(1, start + Duration::from_secs(30)).unwrap());
        assert!(!path.exists(), "it is not woken again for the same attempt at every heartbeat");
        assert!(bell.ring(1, start + AGAIN_AFTER).unwrap() && path.exists());
        assert!(bell.ring(2, start + AGAIN_AFTER).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "attempt 2\n");
    }
}
