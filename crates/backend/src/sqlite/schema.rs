//! Tables, pragmas and connection settings of the database file, with the reasons for their sizes.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::failure::{failed, impossible, in_plain_words};
use crate::{Error, Lease, LeaseId, Result, Revision};

/// Marks a file as ours: "Rfit" in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x5266_6974;

/// Grows when the tables change in a way that older versions cannot read.
pub(super) const SCHEMA_VERSION: i32 = 1;

const TABLES: &str = "
    CREATE TABLE items (
        key BLOB NOT NULL PRIMARY KEY,
        value BLOB NOT NULL,
        revision INTEGER NOT NULL,
        lease INTEGER
    );
    CREATE INDEX items_by_lease ON items (lease) WHERE lease IS NOT NULL;
    CREATE TABLE leases (id INTEGER NOT NULL PRIMARY KEY, ttl_ms INTEGER NOT NULL);
    CREATE TABLE store (only INTEGER NOT NULL PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL);
    INSERT INTO store VALUES (0, 0);
";

/// A checkpoint copies the write-ahead log back into the database while writers wait. Every 32 MiB:
/// seldom enough that pages written again and again are copied once, soon enough that the pause stays
/// in the tens of milliseconds and the log is read back in no time after a crash.
const CHECKPOINT_PAGES: i64 = 8192;

/// What the log is cut back to after one huge transaction: twice its usual size.
const LOG_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// The writer sees every change itself, so what it holds in memory stays valid: worth some of it.
const WRITER_CACHE_KIB: i64 = 32 * 1024;

/// A reader's pages are thrown away after each commit of the writer: enough for a few large pages.
const READER_CACHE_KIB: i64 = 8 * 1024;

/// No other process writes to the file; only a backup or an interactive `sqlite3` can hold a lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Fills an empty file, so that it is a store when this returns.
pub(super) fn create(path: &Path) -> rusqlite::Result<()> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    connection.execute_batch(TABLES)?;
    use_write_ahead_log(&connection)?;
    connection.close().map_err(|(_, error)| error)
}

/// The one connection that writes: what it has committed survives a power cut.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    let refused = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::SystemIoFailure) => {
            failed(&format!("sqlite {}", path.display()), &error)
        }
        _ => Error::NotAStore { path: path.into(), reason: in_plain_words(&error) },
    };
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(refused)?;
    // Before anything that writes: a damaged file is left as it is.
    revision(&connection).map_err(refused)?;
    let settle = || {
        use_write_ahead_log(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)
    };
    settle().map_err(refused)?;
    Ok(connection)
}

/// A connection for reading, which never blocks the writer.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    match mode.as_str() {
        "wal" => Ok(()),
        // SQLite says so by answering with the mode that it stays in, not with an error.
        _ => Err(impossible("the file system cannot hold a write-ahead log")),
    }
}

/// The current revision of the store.
pub(super) fn revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let revision: i64 = connection.query_row("SELECT revision FROM store", [], |row| row.get(0))?;
    Ok(Revision(revision.cast_unsigned()))
}

/// The leases that had not ended when the store was last open.
pub(super) fn leases(connection: &Connection) -> rusqlite::Result<Vec<Lease>> {
    let mut statement = connection.prepare("SELECT id, ttl_ms FROM leases")?;
    let rows = statement.query_map([], |row| {
        let ttl = Duration::from_millis(row.get::<_, i64>(1)?.cast_unsigned());
        Ok(Lease { id: LeaseId(row.get(0)?), ttl })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_writer_commits_is_synced_to_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        std::fs::write(&path, "").unwrap();
        create(&path).unwrap();
        let writer = open_writer(&path).unwrap();
        let pragma = |name: &str| writer.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(pragma("synchronous"), 2, "2 is FULL");
        assert_eq!(pragma("wal_autocheckpoint"), CHECKPOINT_PAGES);
        let mode: String = writer.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }

    #[test]
    fn ranges_and_leases_are_found_through_an_index() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        std::fs::write(&path, "").unwrap();
        create(&path).unwrap();
        let writer = open_writer(&path).unwrap();
        let plan = |sql: &str| -> String {
            let mut statement = writer.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let lines = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
            lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        let range = plan(&super::super::reader::RANGE.replace('?', "x'2f'"));
        assert!(range.contains("USING INDEX") && !range.contains("TEMP B-TREE"), "{range}");
        let leased = plan(&super::super::batch::DELETE_LEASED.replace('?', "7"));
        assert!(leased.contains("items_by_lease"), "{leased}");
    }
}
