//! The PID file, whose lock makes one process the agent of a data directory, across re-execution.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use refit_identity::atomic_file::{self, PUBLIC};
use refit_types::DataDir;
use rustix::stdio::dup2_stdin;

/// Others may list the data directory; private files in it have modes of their own.
const DIRECTORY_MODE: u32 = 0o755;

/// An agent that ends may remove the file between our opening and locking it; each attempt is one such race.
const MAX_ATTEMPTS: usize = 100;

/// The right to be the agent of a data directory, for as long as this lives.
///
/// The lock (`flock` on `agent.pid`) is what counts and the number in the file is only for people and
/// service managers, so a file that a crash left behind stops nobody. It belongs to the open file, not to
/// the process: [`crate::reexec`] hands that open file to the next image as its standard input, and no
/// second agent can slip in between.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    locked: File,
}

/// Why this process cannot be the agent of a data directory.
#[derive(Debug, thiserror::Error)]
pub enum PidFileError {
    /// There is one already.
    #[error("another agent (pid {pid}) uses {directory}: stop it, or give this one a data directory of its own",
        directory = .directory.display())]
    Taken {
        /// Which process, or `unknown`.
        pid: String,
        /// The data directory.
        directory: PathBuf,
    },
    /// The disk refused.
    #[error("{path} cannot be {action}: {source}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl PidFile {
    /// Makes this process the agent of the data directory, which is created if need be.
    ///
    /// To be called before anything else uses standard input: a re-executed agent finds its lock there.
    pub fn take(directory: &DataDir) -> Result<Self, PidFileError> {
        let path = directory.agent_pid();
        let failed = |action| {
            let path = path.clone();
            move |source| PidFileError::File { path, action, source }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(directory.root()).map_err(failed("created"))?;
        if let Some(locked) = inherited(&path).map_err(failed("taken over"))? {
            return Ok(Self { path, locked });
        }
        for _ in 0..MAX_ATTEMPTS {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(failed("opened"))?;
            match try_lock(&file, &path).map_err(failed("locked"))? {
                LockAttempt::Acquired => {
                    let locked = replace(&path).map_err(failed("written"))?;
                    return Ok(Self { path, locked });
                }
                LockAttempt::HeldByAnother => {
                    let pid = fs::read_to_string(&path).unwrap_or_default();
                    let pid =
                        pid.trim().parse::<u32>().map_or_else(|_| "unknown".into(), |pid| pid.to_string());
                    return Err(PidFileError::Taken { pid, directory: directory.root().into() });
                }
                LockAttempt::Replaced => {}
            }
        }
        let error = io::Error::other("other agents of this data directory keep starting and ending");
        Err(failed("locked")(error))
    }

    /// The file that the next image must be given.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.locked.as_fd()
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PidFile {
    /// A clean exit leaves no file behind, unless it is another's by now.
    fn drop(&mut self) {
        if is_at(&self.locked, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
        // Closing would not do while a program that is just being started still has a copy.
        let _ = self.locked.unlock();
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LockAttempt {
    Acquired,
    HeldByAnother,
    /// It was locked, but another file is at its path by now: the lock means nothing.
    Replaced,
}

fn try_lock(file: &File, path: &Path) -> io::Result<LockAttempt> {
    match file.try_lock() {
        Ok(()) if is_at(file, path) => Ok(LockAttempt::Acquired),
        Ok(()) => Ok(LockAttempt::Replaced),
        Err(TryLockError::WouldBlock) => Ok(LockAttempt::HeldByAnother),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Puts a new file, locked and complete, in the place of one whose lock we hold. Whoever waits for the
/// old one sees that it is not the one at `path` any more.
fn replace(path: &Path) -> io::Result<File> {
    let contents = format!("{}\n", std::process::id());
    let staged = atomic_file::stage(path, contents.as_bytes(), PUBLIC)?;
    staged.as_file().try_lock()?;
    staged.persist(path).map_err(|refused| refused.error)
}

/// The lock that the image before this one left at standard input. That it is one proves itself: it is
/// the file at `path`, and a lock can be taken on it.
fn inherited(path: &Path) -> io::Result<Option<File>> {
    let stdin = io::stdin();
    let Ok(file) = stdin.as_fd().try_clone_to_owned().map(File::from) else { return Ok(None) };
    if !file.metadata().is_ok_and(|found| found.is_file()) || !is_at(&file, path) || file.try_lock().is_err()
    {
        return Ok(None);
    }
    // Programs that the agent starts must not hold the lock.
    dup2_stdin(File::open("/dev/null")?)?;
    if fs::read_to_string(path)?.trim() == std::process::id().to_string() {
        return Ok(Some(file));
    }
    replace(path).map(Some)
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let there = fs::symlink_metadata(path).map(identity);
    matches!((file.metadata().map(identity), there), (Ok(open), Ok(there)) if open == there)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fresh() -> (tempfile::TempDir, DataDir) {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::new(directory.path().join("data"));
        (directory, data)
    }

    #[test]
    fn one_agent_at_a_time() {
        let (_directory, data) = fresh();
        let own = format!("{}\n", std::process::id());
        let first = PidFile::take(&data).unwrap();
        assert_eq!(fs::read_to_string(first.path()).unwrap(), own);
        assert_eq!(fs::metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o644);
        let refused = PidFile::take(&data).unwrap_err().to_string();
        let expected = format!("another agent (pid {}) uses {}:", std::process::id(), data.root().display());
        assert!(refused.starts_with(&expected), "{refused}");
        drop(first);
        assert!(!data.agent_pid().exists());
        assert_eq!(fs::read_dir(data.root()).unwrap().count(), 0);
        PidFile::take(&data).unwrap();
    }

    #[test]
    fn what_a_crash_left_behind_stops_nobody() {
        let (_directory, data) = fresh();
        fs::create_dir_all(data.root()).unwrap();
        for left in ["1\n", "", "garbage", "99999999999\n"] {
            fs::write(data.agent_pid(), left).unwrap();
            let taken = PidFile::take(&data).unwrap();
            assert_eq!(fs::read_to_string(taken.path()).unwrap(), format!("{}\n", std::process::id()));
        }
    }

    #[test]
    fn anothers_file_is_not_removed() {
        let (_directory, data) = fresh();
        let ours = PidFile::take(&data).unwrap();
        fs::remove_file(ours.path()).unwrap();
        let theirs = PidFile::take(&data).unwrap();
        drop(ours);
        assert!(theirs.path().exists());
        assert!(PidFile::take(&data).is_err());
    }

    #[test]
    fn the_lock_of_a_file_that_was_replaced_says_nothing() {
        let (_directory, data) = fresh();
        fs::create_dir_all(data.root()).unwrap();
        let path = data.agent_pid();
        fs::write(&path, "").unwrap();
        let early = File::open(&path).unwrap();
        let theirs = PidFile::take(&data).unwrap();
        assert_eq!(try_lock(&early, &path).unwrap(), LockAttempt::Replaced);
        drop(theirs);
        assert_eq!(try_lock(&early, &path).unwrap(), LockAttempt::Replaced);
    }

    #[test]
    fn many_that_start_and_end_never_overlap() {
        let (_directory, data) = fresh();
        let running = std::sync::atomic::AtomicUsize::new(0);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let Ok(file) = PidFile::take(&data) else { continue };
                        assert_eq!(running.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::yield_now();
                        running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(file);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
    }
}
