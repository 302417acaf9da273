use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Held by the one process that changes anything; given up when it ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another updater is at work.
    #[error("another updater{process} is at work on this host ({path} is locked); try again when it is done",
        path = .path.display(), process = .process.map(|id| format!(" (process {id})")).unwrap_or_default())]
    Held {
        /// Which file.
        path: PathBuf,
        /// Who has it, if that can be told.
        process: Option<u32>,
    },
    /// The disk refused.
    #[error("the lock {path} cannot be had: {source}", path = .path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Lock {
    /// Takes the lock, or says at once that somebody else has it.
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
                    // Only for people who wait.
                    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                    return Ok(Self { _file: file });
                }
                // Its holder removed it meanwhile, with all else.
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

    /// Takes the lock as soon as it can be had, within a bound.
    pub fn wait(path: &Path, patience: Duration) -> Result<Self, LockError> {
        let end = Instant::now() + patience;
        loop {
            match Self::take(path) {
                Err(LockError::Held { .. }) if Instant::now() < end => std::thread::sleep(LOOK_EVERY),
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
    }
}
