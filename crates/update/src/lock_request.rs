//! How a command of an operator makes known that it waits for the lock, so that a download ends for it. A lock of the
//! kernel, which is gone with the process that waits, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held by a command that waits for the lock. Several may wait.
#[derive(Debug)]
pub struct LockRequest {
    _file: File,
}

impl LockRequest {
    /// Makes the request known until it is dropped.
    pub fn make(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
        file.lock_shared()?;
        Ok(Self { _file: file })
    }

    /// Whether anybody waits for the lock so.
    pub fn is_made(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_lasts_as_long_as_any_that_made_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock.wanted");
        assert!(!LockRequest::is_made(&path));
        let (one, two) = (LockRequest::make(&path).unwrap(), LockRequest::make(&path).unwrap());
        assert!(LockRequest::is_made(&path));
        drop(one);
        assert!(LockRequest::is_made(&path));
        drop(two);
        assert!(path.exists() && !LockRequest::is_made(&path));
    }
}
