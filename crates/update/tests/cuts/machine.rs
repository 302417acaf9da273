//! A host in memory: versions on a disk that can lose power, and an agent that touches its database.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use refit_types::Version;
use refit_update::{Config, Disk, Layout, Outcome, Profile, Recovery, UpdateError, Urgency};

use crate::disk::MemoryDisk;
use crate::host::{Host, PROXY, Platform, version};

pub type Machine = Host<MemoryDisk>;

/// The text with every time in it replaced by one word.
fn without_times(text: &str) -> String {
    let is_of_time = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
    let (mut found, mut word) = (String::new(), String::new());
    for c in text.chars().chain(['\n']) {
        if is_of_time(c) {
            word.push(c);
            continue;
        }
        let is_time = word.len() >= 20 && word.contains('T') && word.ends_with('Z');
        found += if is_time { "TIME" } else { &word };
        word.clear();
        found.push(c);
    }
    let lines = found.lines().filter(|line| !line.contains("\"seconds\": "));
    lines.collect::<Vec<_>>().join("\n")
}

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
            false => self.updater().enable(Some(PROXY.into()), None, None, false, self),
        };
        if !ran && !self.platform.is_cut() && self.active().is_some() {
            self.start_agent();
        }
        outcome
    }

    /// What a person does who removes everything: again, if it was cut.
    pub fn uninstall(&self) -> Result<bool, UpdateError> {
        self.environment().recover(Recovery::Online, None)?;
        self.updater().uninstall()
    }

    /// All files, without the times in them: those are of each run.
    pub fn tree(&self) -> BTreeMap<String, String> {
        let tree = self.platform.tree().into_iter();
        tree.map(|(path, found)| (path, without_times(&found))).collect()
    }

    /// Who has opened the database, in order.
    pub fn database(&self) -> Vec<String> {
        opened(&self.platform, &self.layout.database())
    }

    pub fn lose_power(&self, drops_unsynced: bool) {
        self.state.lock().unwrap().running = None;
        self.platform.power_on(drops_unsynced);
    }

    /// What goes before each start of the unit.
    pub fn recover_before_start(&self, what: &str) {
        self.environment()
            .recover(Recovery::BeforeStart, None)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    /// The unit starts: first what goes before it, then the agent that the pointer names, if there is one.
    pub fn boot(&self, what: &str) {
        self.recover_before_start(what);
        if self.active().is_some() {
            self.start_agent();
        }
    }

    /// A supervisor runs from now on, and its agent.
    pub fn supervise(&self, what: &str) {
        self.state.lock().unwrap().is_unmanaged = false;
        if self.state.lock().unwrap().running.is_none() {
            self.boot(what);
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
