//! A host in memory: versions on a disk that can lose power, and an agent that touches its database.

use std::io;
use std::path::Path;

use refit_types::Version;
use refit_update::{Config, Disk, Layout, Outcome, Profile, Recovery, UpdateError, Urgency};

use crate::disk::MemoryDisk;
use crate::host::{Host, PROXY, Platform, version};

pub type Machine = Host<MemoryDisk>;

/// Who has opened a database, in order.
fn opened(disk: &MemoryDisk, database: &Path) -> Vec<String> {
    let bytes = disk.read(database).unwrap_or_default();
    String::from_utf8(bytes).unwrap().split_whitespace().map(str::to_owned).collect()
}

impl Platform for MemoryDisk {
    fn disk(&self) -> &dyn Disk {
        self
    }

    fn open_database(&self, path: &Path, version: &Version) {
        let mut opened = opened(self, path);
        if opened.last() != Some(&version.to_string()) {
            opened.push(version.to_string());
        }
        self.write_as_other(path, opened.join(" ").as_bytes());
    }

    /// The power can go before this too.
    fn does(&self, what: &str) -> io::Result<()> {
        self.operate(what)
    }
}

impl Machine {
    /// A host on which nothing is installed.
    pub fn new() -> Self {
        let (disk, root) = (MemoryDisk::default(), Path::new("/"));
        for folder in ["/usr/local/bin", "/usr/local/lib/systemd/system"] {
            disk.make_dirs_as_other(Path::new(folder));
        }
        let database = Layout::new(root, &Profile::refit(), None).database();
        disk.make_dirs_as_other(database.parent().unwrap());
        disk.settle();
        Host::on(disk, root)
    }

    /// What one run of the updater does. An operator starts the agent once it is there.
    pub fn switch_to(&self, target: &str) -> Result<Outcome, UpdateError> {
        let ran = self.state.lock().unwrap().running.is_some();
        self.want(target);
        self.environment().recover(Recovery::Online, None)?;
        let is_enabled = Config::load(&self.platform, &self.layout.config())?.enabled;
        let outcome = match is_enabled {
            true => self.updater().update(Urgency::Due, self),
            false => self.updater().enable(Some(PROXY.into()), None, None, self),
        };
        if !ran && !self.platform.is_cut() && self.active().is_some() {
            self.start_agent();
        }
        outcome
    }

    /// Who has opened the database, in order.
    pub fn database(&self) -> Vec<String> {
        opened(&self.platform, &self.layout.database())
    }

    pub fn lose_power(&self, drops_unsynced: bool) {
        self.state.lock().unwrap().running = None;
        self.platform.power_on(drops_unsynced);
    }

    /// The unit starts: first what goes before it, then the agent that the pointer names, if there is one.
    pub fn boot(&self, what: &str) {
        self.environment()
            .recover(Recovery::BeforeStart, None)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        if self.active().is_some() {
            self.start_agent();
        }
    }

    /// Somebody settles what an updater was killed in the middle of, while the host is up.
    pub fn recover_online(&self, what: &str) {
        self.environment().recover(Recovery::Online, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    /// The agent that the pointer names is whole, and its database was never opened by a later one.
    pub fn assert_sound(&self, what: &str) {
        let Some(active) = self.active() else { return };
        let running = self.state.lock().unwrap().running.clone();
        let running = running.unwrap_or_else(|| panic!("{what}: no agent runs"));
        assert_eq!(running.version, version(&active), "{what}");
        let link = self.platform.read_link(&self.layout.bin_link("refit")).unwrap();
        let binary = self.platform.read(&link).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(String::from_utf8(binary).unwrap(), active, "{what}");
        assert!(self.platform.kind(&self.layout.checksum(&version(&active))).unwrap().is_some(), "{what}");
        let unit = self.platform.read(&self.layout.unit_path(&self.profile.unit)).unwrap();
        assert_eq!(String::from_utf8(unit).unwrap(), format!("refit.service of {active}"), "{what}");
        let opened = self.database();
        assert_eq!(opened.last(), Some(&active), "{what}: {opened:?}");
        let latest = opened.iter().map(|text| version(text)).max();
        assert_eq!(latest, Some(version(&active)), "{what}: opened by a later version: {opened:?}");
    }
}
