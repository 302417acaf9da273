//! Turns SQLite's error codes into messages that say what an operator can do.

use rusqlite::{ErrorCode, ffi};

use crate::Error;

/// An SQLite error as a message for the person who has to act on it.
pub(super) fn in_plain_words(error: &rusqlite::Error) -> String {
    let Some(code) = error.sqlite_error_code() else { return error.to_string() };
    match code {
        ErrorCode::DiskFull => "the disk is full; nothing was written".into(),
        ErrorCode::SystemIoFailure => format!("the disk could not be read or written ({error})"),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => format!("the file is damaged ({error})"),
        ErrorCode::ReadOnly => "the file or its directory cannot be written to".into(),
        ErrorCode::CannotOpen => "the file cannot be opened".into(),
        ErrorCode::PermissionDenied => "the file may not be accessed".into(),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => "another program keeps the file locked".into(),
        _ => error.to_string(),
    }
}

/// The failure of a store named `store`.
pub(super) fn failed(store: &str, error: &rusqlite::Error) -> Error {
    Error::Failed { store: store.into(), reason: in_plain_words(error) }
}

/// An SQLite error for a file with contents that we never wrote.
pub(super) fn damaged(what: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(what.into()))
}

/// An SQLite error for something that it cannot do here.
pub(super) fn impossible(why: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(why.into()))
}
