//! The real file system.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use super::{Disk, FileKind};

/// Pages copied in one step of a backup, during which the agent's writers wait.
const PAGES_PER_STEP: i32 = 256;

/// The file system of this host.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Some(match found.file_type() {
            kind if kind.is_file() => FileKind::File { bytes: found.len() },
            kind if kind.is_dir() => FileKind::Directory,
            kind if kind.is_symlink() => FileKind::Link,
            _ => FileKind::Other,
        }))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let existing = path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
        let found = rustix::fs::statvfs(existing)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().mode(mode).create(path)?;
        // Regardless of the umask.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn create_file(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Write + Send>> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        Ok(Box::new(file))
    }

    fn set_access(&self, path: &Path, (user, group): (u32, u32), mode: u32) -> io::Result<()> {
        // In this order: a change of the owner can clear bits of the mode.
        chown(path, Some(user), Some(group))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        symlink(target, link)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    /// The copy is private until it has the owner and mode of the original.
    fn back_up_database(&self, from: &Path, to: &Path) -> io::Result<()> {
        let original = fs::metadata(from)?;
        drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?);
        let copied = || -> rusqlite::Result<()> {
            let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            let mut copy = Connection::open(to)?;
            let backup = Backup::new(&source, &mut copy)?;
            backup.run_to_completion(PAGES_PER_STEP, std::time::Duration::from_millis(5), None)?;
            drop(backup);
            // Folds the write-ahead log into the copy.
            copy.pragma_update(None, "journal_mode", "DELETE")?;
            Ok(())
        };
        copied().map_err(io::Error::other)?;
        self.set_access(to, (original.uid(), original.gid()), original.mode() & 0o777)
    }
}
