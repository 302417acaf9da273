//! The lock that keeps two processes from changing a host at the same time. Taken by every command that changes anything.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const POLL_EVERY: Duration = Duration::from_millis(100);

/// Held by the one process that changes anything. The kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// The path of a file that goes with the lock.
    temporary: Option<PathBuf>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = self.temporary.take().filter(|path| is_at(&self.file, path)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("another updater{process} is at work on this host ({path} is locked); try again when it is done",
        path = .path.display(), process = .process.map(|id| format!(" (process {id})")).unwrap_or_default())]
    Held {
        /// The file.
        path: PathBuf,
        /// The process that holds it, if that is known.
        process: Option<u32>,
    },
    /// The disk refused.
    #[error("the lock {path} cannot be taken: {source}", path = .path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl Lock {
    /// Takes the lock, or fails at once if it is held.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Disk { path: path.into(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).read(true).write(true).mode(0o600);
            let mut file = options.open(path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => {
                    // For the message of processes that wait.
                    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                    return Ok(Self { file, temporary: None });
                }
                // An uninstallation has removed the file meanwhile.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    let _ = file.take(20).read_to_string(&mut text);
                    return Err(LockError::Held { path: path.into(), process: text.trim().parse().ok() });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }

    /// Like [`Lock::take`], and removes the file when the lock is released.
    pub(crate) fn take_temporary(path: &Path) -> Result<Self, LockError> {
        let mut lock = Self::take(path)?;
        lock.temporary = Some(path.into());
        Ok(lock)
    }

    /// Like [`Lock::take_temporary`]; nothing if there is no such file and no room for one: then nobody holds it, and nobody
    /// can take it.
    pub(crate) fn take_if_possible(path: &Path) -> Result<Option<Self>, LockError> {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match Self::take_temporary(path) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Disk { source, .. })
                if matches!(source.kind(), StorageFull | QuotaExceeded)
                    && path.try_exists().is_ok_and(|is_there| !is_there) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the lock as soon as it is free, within `patience`.
    pub fn wait(path: &Path, patience: Duration) -> Result<Self, LockError> {
        let end = Instant::now() + patience;
        loop {
            match Self::take(path) {
                Err(LockError::Held { .. }) if Instant::now() < end => std::thread::sleep(POLL_EVERY),
                other => return other,
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    matches!((file.metadata(), path.metadata()), (Ok(one), Ok(other)) if same(&one, &other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("versions/lock");
        let held = Lock::take(&path).unwrap();
        let Err(LockError::Held { process, .. }) = Lock::take(&path) else { panic!("two have the lock") };
        assert_eq!(process, Some(std::process::id()));
        assert!(Lock::wait(&path, Duration::from_millis(1)).is_err());
        std::fs::remove_file(&path).unwrap();
        let next = Lock::take(&path).unwrap();
        drop(held);
        assert!(Lock::take(&path).is_err(), "the file that the next one has is another");
        drop(next);
        Lock::take(&path).unwrap();
        assert!(path.exists());
        drop(Lock::take_temporary(&path).unwrap());
        assert!(!path.exists(), "it went with the lock");
    }
}
