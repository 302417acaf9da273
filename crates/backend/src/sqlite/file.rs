//! The database file on disk: its directory, process lock, header check and atomic creation. SQLite is not used here.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::schema::{APPLICATION_ID, SCHEMA_VERSION};
use crate::{Error, Result};

/// What stands at the path of a store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or an empty file.
    Nothing,
    /// A file whose header says that it is a store.
    Store,
}

/// The path with something appended to its last part: where SQLite and we put files beside it.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Creates the directory of the store, accessible to this user only.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)
        }
        _ => Ok(()),
    }
}

/// Locks the store for this process until the file is dropped. The lock file is separate from the database: SQLite has
/// locks of its own there, and we examine the database before SQLite opens it.
pub(super) fn lock(path: &Path) -> Result<File> {
    let failed = |error: io::Error| Error::Failed {
        store: format!("sqlite {}", path.display()),
        reason: format!("its lock file cannot be used: {error}"),
    };
    let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
    let file = options.open(beside(path, ".lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(path.into())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Tells a store from anything else by its first bytes, without SQLite: merely opening a file there
/// may change it.
pub(super) fn examine(path: &Path) -> Result<Found> {
    let refused = |reason: String| Error::NotAStore { path: path.into(), reason };
    let unreadable = |error: io::Error| Error::Failed {
        store: format!("sqlite {}", path.display()),
        reason: format!("the file cannot be read: {error}"),
    };
    let wal_bytes = fs::metadata(beside(path, "-wal")).map_or(0, |wal| wal.len());
    let mut header = Vec::new();
    let bytes = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(unreadable(error)),
        Ok(file) => {
            let metadata = file.metadata().map_err(unreadable)?;
            if !metadata.is_file() {
                return Err(refused("it is not a file".into()));
            }
            file.take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(unreadable)?;
            metadata.len()
        }
    };
    match (bytes, wal_bytes) {
        (0, 0) => Ok(Found::Nothing),
        // A new database would replay the old journal and be corrupt from the start.
        (0, _) => Err(refused("it is gone or empty, but its journal (-wal) is still there".into())),
        _ => check_header(&header, bytes, wal_bytes > 0).map(|()| Found::Store).map_err(refused),
    }
}

const HEADER_BYTES: usize = 100;

/// Reads the fields that <https://www.sqlite.org/fileformat.html#the_database_header> lays down.
fn check_header(header: &[u8], bytes: u64, has_wal: bool) -> Result<(), String> {
    if !header.starts_with(b"SQLite format 3\0") {
        return Err("it is not an SQLite database".into());
    }
    let field = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(|| "it is cut off within its header".to_owned())
    };
    let (pages, user_version, application_id) = (field(28)?, field(60)?, field(68)?);
    let page_bytes = match field(16)? >> 16 {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    if application_id != APPLICATION_ID.cast_unsigned() {
        return Err("it is the SQLite database of another program".into());
    }
    if user_version > SCHEMA_VERSION.cast_unsigned() {
        return Err(format!(
            "its format {user_version} is newer than {SCHEMA_VERSION}, the newest that this version can read"
        ));
    }
    // After a crash, the last pages may be in the journal only.
    let expected = u64::from(pages) * page_bytes;
    if !has_wal && bytes < expected {
        return Err(format!("it is cut off: {bytes} bytes are left of {expected}"));
    }
    Ok(())
}

/// Makes a store appear at `path` whole or not at all: `fill` prepares it under another name.
pub(super) fn create_whole(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let failed = |error: io::Error| Error::Failed {
        store: format!("sqlite {}", path.display()),
        reason: format!("the file cannot be created: {error}"),
    };
    let unfinished = beside(path, ".new");
    for leftover in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(beside(&unfinished, leftover)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
    let file = create().map_err(failed)?;
    fill(&unfinished)?;
    let publish = || {
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    publish().map_err(failed)
}
