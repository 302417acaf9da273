//! Reads and damages databases and backups behind the updater's back, for the tests of downgrades.

use std::path::PathBuf;

use refit_types::{UpdaterStatus, Version};
use refit_update::{Profile, RealDisk, last_status};

use crate::folder::{Folder, open};
use crate::host::Host;

impl Host<Folder> {
    /// A host of another agent.
    pub fn managing(profile: Profile) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        Self::with_profile(Folder { _root: folder }, &root, profile)
    }

    pub fn status(&self) -> UpdaterStatus {
        last_status(&RealDisk, &self.layout)
    }

    pub fn versions(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.layout.versions()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut versions: Vec<_> = names.filter(|name| name.parse::<Version>().is_ok()).collect();
        versions.sort();
        versions
    }

    pub fn note(&self, version: &str) -> PathBuf {
        self.layout.backup(&version.parse().unwrap()).join("backup.yaml")
    }

    pub fn change_note(&self, version: &str, change: impl Fn(String) -> String) {
        let text = std::fs::read_to_string(self.note(version)).unwrap();
        std::fs::write(self.note(version), change(text)).unwrap();
    }

    pub fn is_intact(&self) {
        let database = open(&self.layout.database());
        let checked: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(checked, "ok");
    }

    /// Copies the log while it is there, and puts it back after the agent has closed the database.
    pub fn crash_with_a_log(&self) {
        let log = self.log();
        let database = open(&self.layout.database());
        database.execute("INSERT INTO starts VALUES ('only in the log')", []).unwrap();
        let bytes = std::fs::read(&log).unwrap();
        drop(database);
        std::fs::write(&log, bytes).unwrap();
    }

    fn log(&self) -> PathBuf {
        let mut name = self.layout.database().into_os_string();
        name.push("-wal");
        name.into()
    }

    pub fn log_bytes(&self) -> u64 {
        self.log().metadata().unwrap().len()
    }

    pub fn stop_agent(&self) {
        self.state.lock().unwrap().running = None;
    }
}
