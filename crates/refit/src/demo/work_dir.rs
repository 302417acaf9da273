//! The temporary directory of the demo: checked for space and path length, and removed at the end.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rand::RngExt;

use crate::exit::Failure;

/// What the path of a socket may have, less the longest that is put behind the directory:
/// `/h50/var/lib/refit/supervisor.sock`.
const LONGEST: usize = 107 - 34;
/// Databases and logs.
const BESIDES: u64 = 64 << 20;

/// The directory in which everything is, and which is gone with it.
#[derive(Debug)]
pub(super) struct WorkDir {
    path: PathBuf,
    is_removed: bool,
}

impl WorkDir {
    /// One in the directory for temporary files, or in /tmp if its path is too long for sockets.
    pub(super) fn new() -> Result<Self, Failure> {
        let name: String = (0..6).map(|_| rand::rng().sample(rand::distr::Alphanumeric) as char).collect();
        let name = format!("refit-demo.{name}");
        let usual = std::path::absolute(std::env::temp_dir()).map_err(Failure::failed)?.join(&name);
        let path =
            if usual.as_os_str().as_bytes().len() <= LONGEST { usual } else { Path::new("/tmp").join(&name) };
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::failed(format!("{} cannot be made: {error}; name another with TMPDIR", path.display()))
        })?;
        Ok(Self { path, is_removed: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses if so many hosts with two versions of a program of that size do not fit.
    pub(super) fn has_room_for(&self, hosts: usize, program: u64) -> Result<(), Failure> {
        let needed = program.saturating_mul(2 * (hosts as u64 + 1)).saturating_add(BESIDES);
        let disk = rustix::fs::statvfs(&self.path).map_err(Failure::failed)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free >= needed {
            return Ok(());
        }
        let mb = |bytes: u64| bytes.div_ceil(1 << 20);
        Err(Failure::failed(format!(
            "{hosts} hosts need {} MB in {}, which has {} MB; name fewer with --hosts, or another directory with TMPDIR",
            mb(needed),
            self.path.parent().unwrap_or(&self.path).display(),
            mb(free)
        )))
    }

    /// Removes it, whole.
    pub(super) fn remove(mut self) -> Result<(), Failure> {
        self.is_removed = true;
        std::fs::remove_dir_all(&self.path).map_err(|error| {
            Failure::failed(format!("{} cannot be removed: {error}; remove it by hand", self.path.display()))
        })
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.is_removed {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes_with_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let work_dir = WorkDir::new().unwrap();
        let path = work_dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("file"), "x").unwrap();
        drop(work_dir);
        assert!(!path.exists());
        let work_dir = WorkDir::new().unwrap();
        let path = work_dir.path().to_owned();
        work_dir.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn hosts_that_do_not_fit_are_refused_before_anything_is_made() {
        let work_dir = WorkDir::new().unwrap();
        work_dir.has_room_for(3, 1 << 10).unwrap();
        let refused = work_dir.has_room_for(50, 1 << 50).unwrap_err().to_string();
        assert!(refused.starts_with("50 hosts need ") && refused.contains("--hosts"), "{refused}");
    }
}
