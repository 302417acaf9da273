//! A host in memory: versions on a disk that can lose power, and an agent that touches its database.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::{Edition, Version};
use refit_update::{
    Agent, Answer, Clock, Condition, Config, ControlPlane, Disk, HostError, IdentityFacts, Layout, Outcome,
    Packages, Parts, Profile, Service, ServiceState, UpdateError, Updater, Urgency, active_version,
    create_dirs_durably, write_durably,
};

use crate::disk::MemoryDisk;

const PROXY: &str = "refit.example.com:3080";

/// The agent that runs now.
#[derive(Debug, Clone)]
struct Running {
    version: Version,
    started_at: Timestamp,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    broken: Vec<Version>,
    wanted: Option<Version>,
    now: i64,
}

#[derive(Debug)]
pub struct Machine {
    pub disk: MemoryDisk,
    layout: Layout,
    profile: Profile,
    state: Mutex<State>,
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

impl Machine {
    /// A host on which nothing is installed.
    pub fn new() -> Self {
        let profile = Profile::refit();
        let layout = Layout::new(Path::new("/"), &profile, None);
        let disk = MemoryDisk::default();
        for folder in ["/usr/local/bin", "/usr/local/lib/systemd/system"] {
            disk.make_dirs_as_other(Path::new(folder));
        }
        disk.make_dirs_as_other(layout.database().parent().unwrap());
        disk.settle();
        Self { disk, layout, profile, state: Mutex::default() }
    }

    pub fn break_versions(&self, broken: &[&str]) {
        self.state.lock().unwrap().broken = broken.iter().map(|text| version(text)).collect();
    }

    fn unpack(&self, version: &Version) -> std::io::Result<()> {
        let folder = self.layout.version(version);
        if self.disk.kind(&folder)?.is_some() {
            self.disk.remove_dir_all(&folder)?;
        }
        for part in ["bin", "etc/systemd"] {
            create_dirs_durably(&self.disk, &folder.join(part), 0o755)?;
        }
        for binary in &self.profile.binaries {
            write_durably(
                &self.disk,
                &folder.join("bin").join(binary),
                version.to_string().as_bytes(),
                0o755,
            )?;
        }
        let units = self.profile.updater_units.iter().map(|unit| &unit.name).chain([&self.profile.unit]);
        for unit in units {
            let text = format!("{unit} of {version}");
            write_durably(&self.disk, &folder.join("etc/systemd").join(unit), text.as_bytes(), 0o644)?;
        }
        write_durably(&self.disk, &folder.join("sha256"), b"good", 0o644)
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            disk: &self.disk,
            layout: &self.layout,
            profile: &self.profile,
            service: self,
            agent: self,
            clock: self,
            control: self,
        }
    }

    /// What one run of the updater does. An operator starts the agent once it is there.
    pub fn switch_to(&self, target: &str) -> Result<Outcome, UpdateError> {
        let ran = self.state.lock().unwrap().running.is_some();
        self.state.lock().unwrap().wanted = Some(version(target));
        let parts = self.parts();
        parts.recover(false)?;
        let updater = Updater { parts, random: |_| 0, packages: self };
        let is_enabled = Config::load(&self.disk, &self.layout.config())?.enabled;
        let outcome = match is_enabled {
            true => updater.update(Urgency::Due),
            false => updater.enable(PROXY.into(), None, None),
        };
        if !ran && !self.disk.is_cut() && self.active().is_some() {
            self.start_agent();
        }
        outcome
    }

    pub fn active(&self) -> Option<String> {
        active_version(&self.disk, &self.layout).unwrap().map(|version| version.to_string())
    }

    /// Who has opened the database, in order.
    pub fn database(&self) -> Vec<String> {
        let bytes = self.disk.read(&self.layout.database()).unwrap_or_default();
        String::from_utf8(bytes).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    pub fn lose_power(&self, drops_unsynced: bool) {
        self.state.lock().unwrap().running = None;
        self.disk.power_on(drops_unsynced);
    }

    /// The unit starts: first what goes before it, then the agent that the pointer names, if there is one.
    pub fn boot(&self, what: &str) {
        self.parts().recover(true).unwrap_or_else(|error| panic!("{what}: {error}"));
        if self.active().is_some() {
            self.start_agent();
        }
    }

    /// The agent that the pointer names is whole, and its database was never opened by a later one.
    pub fn assert_sound(&self, what: &str) {
        let Some(active) = self.active() else { return };
        let running = self.state.lock().unwrap().running.clone();
        let running = running.unwrap_or_else(|| panic!("{what}: no agent runs"));
        assert_eq!(running.version, version(&active), "{what}");
        let link = self.disk.read_link(&self.layout.bin_link("refit")).unwrap();
        let binary = self.disk.read(&link).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(String::from_utf8(binary).unwrap(), active, "{what}");
        assert!(self.disk.kind(&self.layout.checksum(&version(&active))).unwrap().is_some(), "{what}");
        let unit = self.disk.read(&self.layout.unit_path(&self.profile.unit)).unwrap();
        assert_eq!(String::from_utf8(unit).unwrap(), format!("refit.service of {active}"), "{what}");
        let opened = self.database();
        assert_eq!(opened.last(), Some(&active), "{what}: {opened:?}");
        let latest = opened.iter().map(|text| version(text)).max();
        assert_eq!(latest, Some(version(&active)), "{what}: opened by a later version: {opened:?}");
    }

    /// An agent of the version that the pointer names opens the database and writes into it.
    fn start_agent(&self) {
        let active = version(&self.active().expect("a pointer"));
        let mut opened = self.database();
        if opened.last() != Some(&active.to_string()) {
            opened.push(active.to_string());
        }
        self.disk.write_as_other(&self.layout.database(), opened.join(" ").as_bytes());
        let started_at = Clock::now(self);
        self.state.lock().unwrap().running = Some(Running { version: active, started_at });
    }

    fn with_power<T>(&self, what: &str, done: impl FnOnce() -> T) -> Result<T, HostError> {
        self.disk.operate(what).map_err(|error| HostError(error.to_string()))?;
        Ok(done())
    }
}

impl Service for Machine {
    fn is_enabled(&self) -> Result<bool, HostError> {
        Ok(true)
    }

    fn set_enabled(&self, _: bool) -> Result<(), HostError> {
        Ok(())
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        self.with_power("ask how the service is", || match self.state.lock().unwrap().running {
            Some(_) => ServiceState::Running,
            None => ServiceState::Stopped,
        })
    }

    fn reload(&self) -> Result<(), HostError> {
        self.with_power("reload the agent", || self.start_agent())
    }

    fn stop(&self) -> Result<(), HostError> {
        self.with_power("stop the agent", || self.state.lock().unwrap().running = None)
    }

    fn start(&self) -> Result<(), HostError> {
        self.with_power("start the agent", || self.start_agent())
    }

    fn refresh(&self) -> Result<(), HostError> {
        self.with_power("have the units read again", || ())
    }

    fn set_updates(&self, _: bool) -> Result<(), HostError> {
        self.with_power("start the timer", || ())
    }
}

impl Agent for Machine {
    fn version_of(&self, binary: &Path) -> Result<Version, HostError> {
        let name = binary.file_name().unwrap().to_string_lossy();
        self.with_power(&format!("run {name} version"), || ())?;
        let bytes = self.disk.read(binary).map_err(|error| HostError(error.to_string()))?;
        String::from_utf8(bytes).unwrap().parse().map_err(|_| HostError("it does not run".into()))
    }

    fn condition(&self) -> Option<Condition> {
        let state = self.state.lock().unwrap();
        let running = state.running.as_ref().filter(|running| !state.broken.contains(&running.version))?;
        let (version, started_at) = (running.version.clone(), running.started_at);
        Some(Condition { version, started_at, connected: true, reason: None })
    }

    fn identity(&self) -> IdentityFacts {
        IdentityFacts::default()
    }

    fn trusted_issuers(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        let mut state = self.state.lock().unwrap();
        state.now += 1;
        Timestamp::from_millisecond(1_700_000_000_000 + state.now).unwrap()
    }

    fn sleep(&self, length: Duration) {
        self.state.lock().unwrap().now += length.as_millis() as i64;
    }
}

impl ControlPlane for Machine {
    fn find(&self) -> Result<Answer, HostError> {
        Ok(Answer {
            version: self.state.lock().unwrap().wanted.clone().unwrap(),
            edition: Edition::Oss,
            auto_update: true,
            jitter_seconds: 0,
            attempt: 1,
        })
    }

    /// As an archive would come: the version is complete last.
    fn fetch(&self, answer: &Answer) -> Result<(), HostError> {
        self.unpack(&answer.version).map_err(|error| HostError(error.to_string()))
    }
}

impl Packages for Machine {
    fn is_installed(&self, _: &str) -> Result<bool, HostError> {
        Ok(false)
    }

    fn purge(&self, _: &str) -> Result<(), HostError> {
        Ok(())
    }
}
