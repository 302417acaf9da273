//! Identities in an SQLite file of the agent: created whole, checked when opened, and moved aside when
//! damaged. The agent opens it at its start.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use crate::{IdentityBackend, IdentityKey, IdentityStoreError, atomic_file};

type Result<T, E = IdentityStoreError> = std::result::Result<T, E>;

/// Marks a file as an agent's: "Rfid" in ASCII.
const APPLICATION_ID: i32 = 0x5266_6964;

/// Grows when older versions could not read the table any more.
const SCHEMA_VERSION: i32 = 1;

/// A backup does not block writers; only a `sqlite3` shell may, for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What SQLite keeps beside a database, or may have left there.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Identities in a file that only its owner can read. What a call has written survives a power cut.
#[derive(Debug, Clone)]
pub struct SqliteIdentities {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
}

/// An open store, and where a damaged one was moved.
#[derive(Debug)]
pub struct OpenedIdentities {
    /// The store.
    pub store: SqliteIdentities,
    /// Set when a damaged file was in its place. To be logged: the host has to join again.
    pub quarantined: Option<QuarantinedFile>,
}

/// A file that was damaged, or was no store of identities. It is kept for inspection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the identities could not be read: {reason}; the file was kept as {}", .path.display())]
pub struct QuarantinedFile {
    /// Where it is now; its journal is beside it.
    pub path: PathBuf,
    /// What was wrong with it.
    pub reason: String,
}

/// Why a file is not opened.
enum OpenError {
    /// It cannot be recovered: it is quarantined.
    Damaged(String),
    /// It may be usable later, or by another version: it is left where it is.
    Refused(String),
}

impl SqliteIdentities {
    /// Opens the store at `path`, or makes one where there is nothing. A file that is damaged, or that is
    /// something else, is never deleted: it is renamed to `<path>.corrupt-<time>`, the result says so,
    /// and a new store takes its place.
    pub fn open(path: &Path, now: Timestamp) -> Result<OpenedIdentities> {
        let failed = |reason: String| IdentityStoreError::Failed { store: name(path), reason };
        let directory = atomic_file::directory_of(path);
        let make = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        make.map_err(|error| failed(format!("its directory cannot be made: {error}")))?;
        let quarantined = match open_or_create(path) {
            Ok(connection) => return Ok(Self::opened(path, connection, None)),
            Err(OpenError::Refused(reason)) => return Err(failed(reason)),
            Err(OpenError::Damaged(reason)) => quarantine(path, now, reason),
        };
        let quarantined =
            quarantined.map_err(|error| failed(format!("a damaged file cannot be moved aside: {error}")))?;
        match open_or_create(path) {
            Ok(connection) => Ok(Self::opened(path, connection, Some(quarantined))),
            Err(OpenError::Refused(reason) | OpenError::Damaged(reason)) => Err(failed(reason)),
        }
    }

    fn opened(path: &Path, connection: Connection, quarantined: Option<QuarantinedFile>) -> OpenedIdentities {
        let connection = Arc::new(Mutex::new(connection));
        OpenedIdentities { store: Self { path: path.into(), connection }, quarantined }
    }

    pub(crate) async fn with_connection<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let connection = self.connection.clone();
        let result = tokio::task::spawn_blocking(move || {
            query(&connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let failed = |reason| IdentityStoreError::Failed { store: self.describe(), reason };
        match result.await {
            Ok(result) => result.map_err(|error| failed(error.to_string())),
            Err(stopped) => Err(failed(stopped.to_string())),
        }
    }
}

#[async_trait]
impl IdentityBackend for SqliteIdentities {
    fn describe(&self) -> String {
        name(&self.path)
    }

    async fn create(&self, key: IdentityKey, value: Vec<u8>) -> Result<()> {
        const CREATE: &str = "INSERT INTO items (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING";
        match self.with_connection(move |store| store.execute(CREATE, (key.to_string(), value))).await? {
            0 => Err(IdentityStoreError::AlreadyExists { key, store: self.describe() }),
            _ => Ok(()),
        }
    }

    async fn put(&self, key: IdentityKey, value: Vec<u8>) -> Result<()> {
        const PUT: &str = "INSERT INTO items (key, value) VALUES (?, ?)
            ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.with_connection(move |store| store.execute(PUT, (key.to_string(), value))).await.map(drop)
    }

    async fn get(&self, key: IdentityKey) -> Result<Option<Vec<u8>>> {
        const GET: &str = "SELECT value FROM items WHERE key = ?";
        self.with_connection(move |store| {
            store.query_row(GET, [key.to_string()], |row| row.get(0)).optional()
        })
        .await
    }
}

fn name(path: &Path) -> String {
    format!("sqlite {}", path.display())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn open_or_create(path: &Path) -> Result<Connection, OpenError> {
    if !is_store(path)? {
        create(path).map_err(|error| OpenError::Refused(format!("it cannot be made: {error}")))?;
    }
    let private = fs::set_permissions(path, Permissions::from_mode(0o600));
    private.map_err(|error| OpenError::Refused(format!("it cannot be made private: {error}")))?;
    open_checked(path).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => OpenError::Damaged(error.to_string()),
        _ => OpenError::Refused(error.to_string()),
    })
}

/// Whether there is a store, by its first bytes: SQLite changes files by merely opening them.
fn is_store(path: &Path) -> Result<bool, OpenError> {
    let unreadable = |error: io::Error| OpenError::Refused(format!("it cannot be read: {error}"));
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => {
            if !file.metadata().map_err(unreadable)?.is_file() {
                return Err(OpenError::Refused("it is not a regular file".into()));
            }
            file.take(100).read_to_end(&mut header).map_err(unreadable)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(error)),
    }
    let damaged = |reason: &str| Err(OpenError::Damaged(reason.into()));
    if header.is_empty() {
        let journal = COMPANIONS.iter().any(|suffix| beside(path, suffix).exists());
        return if journal { damaged("it is gone or empty, but its journal is not") } else { Ok(false) };
    }
    // The fields of <https://www.sqlite.org/fileformat.html#the_database_header>.
    let field =
        |at: usize| header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
    match (header.starts_with(b"SQLite format 3\0"), field(68), field(60)) {
        (false, ..) | (_, None, _) | (_, _, None) => damaged("it is not an SQLite database"),
        (_, Some(id), _) if id != APPLICATION_ID => damaged("it is the database of another program"),
        (_, _, Some(version)) if version > SCHEMA_VERSION => Err(OpenError::Refused(format!(
            "its format {version} is newer than {SCHEMA_VERSION}, the newest that this version can read"
        ))),
        _ => Ok(true),
    }
}

/// Makes a store appear whole or not at all.
fn create(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let unfinished = beside(path, ".new");
    for suffix in std::iter::once("").chain(COMPANIONS) {
        match fs::remove_file(beside(&unfinished, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let connection = connect(&unfinished)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    connection.execute_batch("CREATE TABLE items (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    file.sync_all()?;
    Ok(atomic_file::rename(&unfinished, path)?)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

fn open_checked(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path)?;
    // It is small: check all of it before anything is written or relies on it.
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'items'";
    let tables: i64 = connection.query_row(tables, [], |row| row.get(0))?;
    if verdict != "ok" || tables != 1 {
        let what = if verdict == "ok" { "it has no table of identities".into() } else { verdict };
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(what)));
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Renames the file and its journal together, so that SQLite can still open them.
fn quarantine(path: &Path, now: Timestamp, reason: String) -> io::Result<QuarantinedFile> {
    let stem = beside(path, &format!(".corrupt-{}", now.strftime("%Y%m%dT%H%M%SZ")));
    let taken = |at: &Path| {
        std::iter::once("").chain(COMPANIONS).any(|suffix| beside(at, suffix).symlink_metadata().is_ok())
    };
    let mut aside = stem.clone();
    for number in 2.. {
        if !taken(&aside) {
            break;
        }
        aside = beside(&stem, &format!(".{number}"));
    }
    // The file goes first: without its journal it could look sound, and be of yesterday. A journal that
    // is left behind because this was interrupted is found, and quarantined, the next time.
    for suffix in std::iter::once("").chain(COMPANIONS) {
        match fs::rename(beside(path, suffix), beside(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    atomic_file::sync_directory(path)?;
    Ok(QuarantinedFile { path: aside, reason })
}
