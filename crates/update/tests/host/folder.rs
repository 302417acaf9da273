//! A directory as a host, with an agent that writes into a real database each time it starts.

use std::path::Path;

use refit_types::Version;
use refit_update::{Disk, Outcome, RealDisk, Urgency};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::host::{Host, PROXY, Platform};

/// A directory of its own.
#[derive(Debug)]
pub struct Folder {
    pub _root: TempDir,
}

impl Platform for Folder {
    fn disk(&self) -> &dyn Disk {
        &RealDisk
    }

    fn open_database(&self, path: &Path, version: &Version) {
        let (database, version) = (open(path), version.to_string());
        let again = database
            .query_row(
                "SELECT said LIKE ?1 || '%' FROM starts ORDER BY rowid DESC LIMIT 1",
                [&version],
                |row| row.get::<_, bool>(0),
            )
            .unwrap_or(false);
        let said = if again { format!("{version} again") } else { version };
        database.execute("INSERT INTO starts VALUES (?1)", [said]).unwrap();
    }
}

/// The agent's database.
pub fn open(path: &Path) -> Connection {
    let database = Connection::open(path).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database.execute_batch("CREATE TABLE IF NOT EXISTS starts (said TEXT)").unwrap();
    database
}

impl Host<Folder> {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        Self::on(Folder { _root: folder }, &root)
    }

    /// A run of the updater that must end on that version, with its agent running.
    #[track_caller]
    pub fn goes_to(&self, version: &str) {
        let outcome = self.update(version, Urgency::Now);
        assert!(matches!(outcome, Outcome::Switched { .. }), "{outcome:?}");
        assert_eq!(self.active().as_deref(), Some(version));
        if self.state.lock().unwrap().running.is_none() {
            self.start_agent();
        }
    }

    /// What a run of the updater comes to, where that version is wanted.
    pub fn update(&self, version: &str, urgency: Urgency) -> Outcome {
        self.want(version);
        match self.layout.config().exists() {
            true => self.updater().update(urgency, self).unwrap(),
            false => self.updater().enable(Some(PROXY.into()), None, None, false, self).unwrap(),
        }
    }

    pub fn rows(&self) -> Vec<String> {
        let database = open(&self.layout.database());
        let mut rows = database.prepare("SELECT said FROM starts ORDER BY rowid").unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}
