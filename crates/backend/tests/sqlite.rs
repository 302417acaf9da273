//! The conformance suite on SQLite, and tests of files, restarts and failures of SQLite alone.

#![allow(clippy::unwrap_used)]

mod conformance;

#[path = "sqlite/failures.rs"]
mod failures;
#[path = "sqlite/files.rs"]
mod files;
#[path = "sqlite/restarts.rs"]
mod restarts;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use refit_backend::{SharedBackend, SqliteBackend};
use tempfile::TempDir;

struct Sqlite {
    backend: SqliteBackend,
    _directory: TempDir,
}

impl conformance::Store for Sqlite {
    async fn open() -> Self {
        let (directory, path) = place();
        Self { backend: open(&path), _directory: directory }
    }

    fn backend(&self) -> SharedBackend {
        Arc::new(self.backend.clone())
    }

    async fn forget_history(&self) {
        conformance::flood(self.backend()).await;
    }
}

conformance::suite!(Sqlite);

/// Where a store may be made; gone at the end of the test.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("data").join("store.db");
    (directory, path)
}

fn open(path: &std::path::Path) -> SqliteBackend {
    SqliteBackend::open(path).expect("a store")
}

/// Names the store to a test that was started again as a process of its own.
const CHILD_STORE: &str = "REFIT_TEST_SQLITE_STORE";

fn child_store() -> Option<PathBuf> {
    std::env::var_os(CHILD_STORE).map(PathBuf::from)
}

/// This test binary, to run just `test` in another process, which then finds a [`child_store`].
fn child(test: &str, store: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD_STORE, store);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
