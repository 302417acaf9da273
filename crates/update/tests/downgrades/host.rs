//! A directory as a host, with an agent that writes into a real database each time it starts.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::{Edition, UpdaterStatus, Version};
use refit_update::{
    Agent as AgentSeam, Answer, Clock, Condition, ControlPlane, HostError, IdentityFacts, Layout, Outcome,
    Packages, Parts, Profile, RealDisk, Service, ServiceState, Updater, Urgency, active_version, last_status,
};
use rusqlite::Connection;
use tempfile::TempDir;

const PROXY: &str = "refit.example.com:3080";

/// How the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    Good,
    NeverReady,
    IgnoresReload,
}

#[derive(Debug)]
struct State {
    agent: Agent,
    running: Option<(Version, Timestamp)>,
    wanted: Version,
    now: i64,
}

#[derive(Debug)]
pub struct Host {
    _root: TempDir,
    layout: Layout,
    profile: Profile,
    state: Mutex<State>,
}

impl Host {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let profile = Profile::refit();
        let layout = Layout::new(root.path(), &profile, None);
        std::fs::create_dir_all(layout.database().parent().unwrap()).unwrap();
        let wanted = "0.0.1".parse().unwrap();
        let state = State { agent: Agent::Good, running: None, wanted, now: 0 };
        Self { _root: root, layout, profile, state: Mutex::new(state) }
    }

    /// A run of the updater that must end on that version, with its agent running.
    #[track_caller]
    pub fn goes_to(&self, version: &str) {
        let outcome = self.update(version);
        assert!(matches!(outcome, Outcome::Switched { .. }), "{outcome:?}");
        assert_eq!(self.active(), version);
        if self.state.lock().unwrap().running.is_none() {
            self.start_agent();
        }
    }

    pub fn update(&self, version: &str) -> Outcome {
        self.state.lock().unwrap().wanted = version.parse().unwrap();
        let updater = self.updater();
        match self.layout.config().exists() {
            true => updater.update(Urgency::Now).unwrap(),
            false => updater.enable(PROXY.into(), None, None).unwrap(),
        }
    }

    pub fn uninstall(&self) {
        std::fs::create_dir_all(self.layout.versions()).unwrap();
        self.updater().uninstall().unwrap();
    }

    pub fn unit(&self) -> Option<String> {
        std::fs::read_to_string(self.layout.unit_path(&self.profile.unit)).ok()
    }

    pub fn write_unit(&self, text: &str) {
        let path = self.layout.unit_path(&self.profile.unit);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn updater(&self) -> Updater<'_> {
        let parts = Parts {
            disk: &RealDisk,
            layout: &self.layout,
            profile: &self.profile,
            service: self,
            agent: self,
            clock: self,
            control: self,
        };
        Updater { parts, random: |_| 0, packages: self }
    }

    pub fn agent_is(&self, agent: Agent) {
        self.state.lock().unwrap().agent = agent;
    }

    pub fn active(&self) -> String {
        active_version(&RealDisk, &self.layout).unwrap().unwrap().to_string()
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

    fn open(&self) -> Connection {
        let database = Connection::open(self.layout.database()).unwrap();
        database.pragma_update(None, "journal_mode", "WAL").unwrap();
        database.execute_batch("CREATE TABLE IF NOT EXISTS starts (said TEXT)").unwrap();
        database
    }

    pub fn rows(&self) -> Vec<String> {
        let database = self.open();
        let mut rows = database.prepare("SELECT said FROM starts ORDER BY rowid").unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    pub fn is_intact(&self) {
        let checked: String = self.open().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(checked, "ok");
    }

    /// Copies the log while it is there, and puts it back after the agent has closed the database.
    pub fn crash_with_a_log(&self) {
        let log = self.log();
        let database = self.open();
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

    pub fn start_agent(&self) {
        let version = self.active();
        let database = self.open();
        let again = database
            .query_row(
                "SELECT said LIKE ?1 || '%' FROM starts ORDER BY rowid DESC LIMIT 1",
                [&version],
                |row| row.get::<_, bool>(0),
            )
            .unwrap_or(false);
        let said = if again { format!("{version} again") } else { version.clone() };
        database.execute("INSERT INTO starts VALUES (?1)", [said]).unwrap();
        let started_at = self.now();
        self.state.lock().unwrap().running = Some((version.parse().unwrap(), started_at));
    }
}

impl Service for Host {
    fn is_enabled(&self) -> Result<bool, HostError> {
        Ok(true)
    }

    fn set_enabled(&self, _: bool) -> Result<(), HostError> {
        Ok(())
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        Ok(match self.state.lock().unwrap().running {
            Some(_) => ServiceState::Running,
            None => ServiceState::Stopped,
        })
    }

    fn reload(&self) -> Result<(), HostError> {
        let ignores = self.state.lock().unwrap().agent == Agent::IgnoresReload;
        if !ignores {
            self.start_agent();
        }
        Ok(())
    }

    fn stop(&self) -> Result<(), HostError> {
        self.stop_agent();
        Ok(())
    }

    fn start(&self) -> Result<(), HostError> {
        self.start_agent();
        Ok(())
    }

    fn refresh(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn set_updates(&self, _: bool) -> Result<(), HostError> {
        Ok(())
    }
}

impl AgentSeam for Host {
    fn version_of(&self, binary: &Path) -> Result<Version, HostError> {
        Ok(std::fs::read_to_string(binary).unwrap().parse().unwrap())
    }

    /// Only a version that is newer than the first never gets ready.
    fn condition(&self) -> Option<Condition> {
        let state = self.state.lock().unwrap();
        let (version, started_at) = state.running.clone()?;
        let is_new = version > "1.0.0".parse().unwrap();
        (state.agent != Agent::NeverReady || !is_new).then_some(Condition {
            version,
            started_at,
            connected: true,
            reason: None,
        })
    }

    fn identity(&self) -> IdentityFacts {
        let valid_until = Some("2099-01-01T00:00:00Z".parse().unwrap());
        IdentityFacts { valid_until, issuer: Some("sha256:aa".into()) }
    }

    fn trusted_issuers(&self) -> Vec<String> {
        vec!["sha256:aa".into()]
    }
}

impl Clock for Host {
    fn now(&self) -> Timestamp {
        let mut state = self.state.lock().unwrap();
        state.now += 1000;
        Timestamp::from_millisecond(1_700_000_000_000 + state.now).unwrap()
    }

    fn sleep(&self, length: Duration) {
        self.state.lock().unwrap().now += length.as_millis() as i64;
    }
}

impl ControlPlane for Host {
    fn find(&self) -> Result<Answer, HostError> {
        let version = self.state.lock().unwrap().wanted.clone();
        Ok(Answer { version, edition: Edition::Oss, auto_update: true, jitter_seconds: 0, attempt: 1 })
    }

    fn fetch(&self, answer: &Answer) -> Result<(), HostError> {
        let folder = self.layout.version(&answer.version);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        for binary in &self.profile.binaries {
            std::fs::write(folder.join("bin").join(binary), answer.version.to_string()).unwrap();
        }
        std::fs::create_dir_all(folder.join("etc/systemd")).unwrap();
        for unit in self.profile.updater_units.iter().map(|unit| &unit.name).chain([&self.profile.unit]) {
            std::fs::write(folder.join("etc/systemd").join(unit), "[Unit]\n").unwrap();
        }
        std::fs::write(folder.join("sha256"), "good").unwrap();
        Ok(())
    }
}

impl Packages for Host {
    fn is_installed(&self, _: &str) -> Result<bool, HostError> {
        Ok(false)
    }

    fn purge(&self, _: &str) -> Result<(), HostError> {
        Ok(())
    }
}
