//! Everything that the updater does to the file system, one operation each: so that a test can cut the power
//! before every one of them, and drop what was not synced.

mod real;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use real::RealDisk;

/// What is at a path; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file of that many bytes.
    File {
        /// How many.
        bytes: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Something that the updater has no business with.
    Other,
}

/// The file system.
pub trait Disk: Debug + Send + Sync {
    /// The bytes of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Where a link points.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The names in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// What is there, if anything is.
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;

    /// Bytes that this user can still write where `path` is, or will be.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Makes a directory in one that exists.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Begins a file anew.
    fn create_file(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Write + Send>>;

    /// Returns when the file's bytes would survive a power cut.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in the directory would survive a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or link another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes a symbolic link.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;

    /// Removes a file or a link.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that is in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Copies a SQLite database that may be in use, consistently, to a path where nothing is.
    fn back_up_database(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The name aside under which a file is made before it takes its place.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(".new");
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

/// Removes a directory in which nothing is left.
pub(crate) fn remove_if_empty(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.kind(path)? {
        Some(FileKind::Directory) if disk.list(path)?.is_empty() => disk.remove_dir_all(path),
        _ => Ok(()),
    }
}

/// Makes a directory, and what is missing above it, so that they survive a power cut.
pub fn create_dirs_durably(disk: &dyn Disk, path: &Path, mode: u32) -> io::Result<()> {
    if disk.kind(path)?.is_some() {
        return Ok(());
    }
    let above = parent(path);
    create_dirs_durably(disk, above, 0o755)?;
    disk.create_dir(path, mode)?;
    disk.sync_dir(above)
}

/// Writes a file so that it is there whole or not at all, whenever the power goes.
pub fn write_durably(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let new = aside(path);
    let mut file = disk.create_file(&new, mode)?;
    file.write_all(bytes)?;
    file.flush()?;
    drop(file);
    disk.sync_file(&new)?;
    disk.rename(&new, path)?;
    disk.sync_dir(parent(path))
}

/// Points a link elsewhere by one rename: whoever looks sees the old target or the new one.
pub fn point_durably(disk: &dyn Disk, link: &Path, target: &Path) -> io::Result<()> {
    point(disk, link, target)?;
    disk.sync_dir(parent(link))
}

/// The same, for who has something better to do before it is durable.
pub(crate) fn point(disk: &dyn Disk, link: &Path, target: &Path) -> io::Result<()> {
    let new = aside(link);
    if disk.kind(&new)?.is_some() {
        disk.remove_file(&new)?;
    }
    disk.symlink(target, &new)?;
    disk.rename(&new, link)
}
