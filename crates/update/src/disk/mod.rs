//! The file system as a seam, one method for each operation, so that a test can cut the power before every one of them
//! and drop what was not synced. Also the one way to write a file durably.

mod real;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use real::RealDisk;

/// The kind of a file; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File {
        /// Its length.
        bytes: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket.
    Other,
}

/// The file system.
pub trait Disk: Debug + Send + Sync {
    /// The bytes of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The target of a link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The names in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// The kind of what is at a path, if anything is.
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;

    /// Free bytes for this user on the file system of `path`, which need not exist yet.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Makes a directory; its parent must exist.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Creates a file, or truncates it.
    fn create_file(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Write + Send>>;

    /// Sets the owner and the group of a file, and then its mode.
    fn set_access(&self, path: &Path, owner: (u32, u32), mode: u32) -> io::Result<()>;

    /// Returns when the file's bytes would survive a power cut.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in the directory would survive a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or link, replacing what is at the new path.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes a symbolic link.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;

    /// Removes a file or a link.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that is in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Copies a SQLite database that may be in use, consistently, to a path that must not exist.
    fn back_up_database(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The temporary name of a file before it is renamed into place. Nobody else uses such names, so what is left of one may be
/// removed.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".refit-new");
    path.with_file_name(name)
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Removes a file or link, if there is one.
pub(crate) fn remove_if_present(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.kind(path)? {
        Some(_) => disk.remove_file(path),
        None => Ok(()),
    }
}

/// Removes a file or link, if there is one, so that it stays removed after a power cut.
pub(crate) fn remove_durably(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.kind(path)? {
        Some(_) => {
            disk.remove_file(path)?;
            disk.sync_dir(parent(path))
        }
        None => Ok(()),
    }
}

/// Removes a directory with all that is in it, if there is one, so that it stays removed after a power cut.
pub(crate) fn remove_dir_durably(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.kind(path)? {
        Some(_) => {
            disk.remove_dir_all(path)?;
            disk.sync_dir(parent(path))
        }
        None => Ok(()),
    }
}

/// Removes a directory in which nothing is left.
pub(crate) fn remove_if_empty(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.kind(path)? {
        Some(FileKind::Directory) if disk.list(path)?.is_empty() => disk.remove_dir_all(path),
        _ => Ok(()),
    }
}

/// Makes a directory with its parents, so that they survive a power cut.
pub fn create_dirs_durably(disk: &dyn Disk, path: &Path, mode: u32) -> io::Result<()> {
    if disk.kind(path)?.is_some() {
        return Ok(());
    }
    let above = parent(path);
    create_dirs_durably(disk, above, 0o755)?;
    disk.create_dir(path, mode)?;
    disk.sync_dir(above)
}

/// Replaces a file so that it has the old or the new content after a power cut, and nothing in between.
pub fn write_durably(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let new = temporary(path);
    write_new(disk, &new, bytes, mode)?;
    put_in_place(disk, &new, path)
}

/// Like [`write_durably`], with an owner. The file is private until it has its owner and mode.
pub(crate) fn write_durably_as(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
    owner: (u32, u32),
    mode: u32,
) -> io::Result<()> {
    let new = temporary(path);
    remove_if_present(disk, &new)?;
    write_new(disk, &new, bytes, 0o600)?;
    disk.set_access(&new, owner, mode)?;
    put_in_place(disk, &new, path)
}

fn write_new(disk: &dyn Disk, new: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = disk.create_file(new, mode)?;
    file.write_all(bytes)?;
    file.flush()
}

fn put_in_place(disk: &dyn Disk, new: &Path, path: &Path) -> io::Result<()> {
    disk.sync_file(new)?;
    disk.rename(new, path)?;
    disk.sync_dir(parent(path))
}

/// Replaces a link by one rename: readers see the old target or the new one.
pub fn point_durably(disk: &dyn Disk, link: &Path, target: &Path) -> io::Result<()> {
    point(disk, link, target)?;
    disk.sync_dir(parent(link))
}

/// Like [`point_durably`], without syncing the directory.
pub(crate) fn point(disk: &dyn Disk, link: &Path, target: &Path) -> io::Result<()> {
    let new = temporary(link);
    if disk.kind(&new)?.is_some() {
        disk.remove_file(&new)?;
    }
    disk.symlink(target, &new)?;
    disk.rename(&new, link)
}
