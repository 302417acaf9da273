use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Held by the one process that changes anything; given up when it ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another updater is at work.
    #[error("another updater is at work on this host ({path} is locked); try again when it is done", path = .0.display())]
    Held(PathBuf),
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
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held(path.into())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("versions/lock");
        let held = Lock::take(&path).unwrap();
        assert!(matches!(Lock::take(&path), Err(LockError::Held(_))));
        drop(held);
        Lock::take(&path).unwrap();
    }
}
