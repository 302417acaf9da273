//! A host as the updater sees it: a service, an agent, a control plane and a clock, on whatever disk a test has.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use refit_types::{Edition, Version};
use refit_update::{
    Agent, Answer, Clock, Condition, Connector, ControlPlane, Disk, Endpoint, Environment, FetchError, Guard,
    HostError, IdentityFacts, Layout, Manager, Packages, ProbeError, Profile, RunEnd, RunMark, Service,
    ServiceState, StartId, Updater, active_version, create_dirs_durably, last_status, write_durably,
};

pub const PROXY: &str = "refit.example.com:3080";
const ISSUER: &str = "sha256:aa";

/// The disk of a test host, and how its agent uses the database.
pub trait Platform: Debug + Send + Sync {
    fn disk(&self) -> &dyn Disk;

    /// An agent of that version opens its database, and leaves word of it there.
    fn open_database(&self, path: &Path, version: &Version);

    /// Whether the host is still there to do this.
    fn does(&self, _what: &str) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps a supervisor or an agent from starting.
#[derive(Debug)]
struct Holding(Arc<AtomicUsize>);

impl Holding {
    fn new(held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(1, Ordering::SeqCst);
        Self(held.clone())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The agent that runs now.
#[derive(Debug, Clone)]
pub struct Running {
    pub version: Version,
    start: StartId,
}

/// What somebody else does to the host.
pub type Happens = fn(&mut State);

#[derive(Debug, Default)]
pub struct State {
    pub running: Option<Running>,
    pub ignores_reload: bool,
    pub hides_identity: bool,
    /// The agent goes on when it is asked to end.
    pub ignores_stop: bool,
    /// What the service manager says while no agent runs.
    pub is_failing: bool,
    /// The service manager is about to start the agent.
    pub is_queued: bool,
    /// Nothing runs the agent.
    pub is_unmanaged: bool,
    /// There is a service manager, and it has not started the agent that runs.
    pub runs_by_hand: bool,
    /// Somebody starts the agent while the units are read.
    pub starts_meanwhile: bool,
    /// Somebody stops the agent before it is reloaded.
    pub stops_meanwhile: bool,
    broken: Vec<Version>,
    /// How the agents of broken versions end, and what they write before; otherwise they run and never answer.
    pub crash: Option<(RunEnd, Vec<String>)>,
    /// The service manager starts the agent at boot.
    pub is_enabled: bool,
    /// Why the control plane cannot be asked.
    pub unreachable: Option<&'static str>,
    /// Why archives cannot be downloaded.
    pub no_download: Option<&'static str>,
    /// Binaries that are killed while they report their version.
    pub kills_probes: bool,
    pub attempt: u64,
    pub jitter_seconds: u32,
    /// Whether the agent is connected to the control plane.
    pub is_cut_off: bool,
    /// The control plane that the agent's configuration names.
    pub agent_proxy: Option<&'static str>,
    /// The control planes that were asked.
    pub asked: Vec<String>,
    /// Whether `find` names the version with `false`.
    pub not_due: bool,
    /// Why `find` withholds it from new hosts.
    pub withheld: Option<&'static str>,
    pub woken_for: Option<u64>,
    wanted: Option<Version>,
    /// What new hosts are named, if not the same.
    pub wanted_by_new: Option<Version>,
    starts: u64,
    /// Since the boot.
    pub milliseconds: u64,
    /// By how much the wall clock is ahead.
    wall_offset: i64,
    /// How often the updater has looked at anything.
    pub looks: usize,
    /// At which of these looks something happens to the supervisor.
    pub beside: Option<(usize, Happens)>,
    /// A supervisor starts its agent as soon as nothing keeps it from that.
    pub starts_soon: bool,
    /// What keeps supervisors from starting, and agents.
    held: Arc<AtomicUsize>,
    /// At which of these looks the wall clock is set, and by how many seconds.
    pub jump: Option<(usize, i64)>,
}

#[derive(Debug)]
pub struct Host<G> {
    pub platform: G,
    pub layout: Layout,
    pub profile: Profile,
    pub state: Mutex<State>,
}

pub fn version(text: &str) -> Version {
    text.parse().unwrap()
}

impl<G: Platform> Host<G> {
    /// A host on which nothing is installed, with its files below `root`.
    pub fn on(platform: G, root: &Path) -> Self {
        Self::with_profile(platform, root, Profile::refit())
    }

    pub fn with_profile(platform: G, root: &Path, profile: Profile) -> Self {
        let layout = Layout::new(root, &profile, None);
        create_dirs_durably(platform.disk(), layout.database().parent().unwrap(), 0o755).unwrap();
        Self { platform, layout, profile, state: Mutex::default() }
    }

    /// Has these versions, and no others, never become healthy.
    pub fn break_versions(&self, broken: &[&str]) {
        self.state.lock().unwrap().broken = broken.iter().map(|text| version(text)).collect();
    }

    /// Whether the agent has joined.
    fn has_joined(&self) -> bool {
        self.platform.disk().kind(&self.layout.data().join("host_uuid")).unwrap().is_some()
    }

    /// What the control plane says from now on.
    pub fn want(&self, text: &str) {
        self.state.lock().unwrap().wanted = Some(version(text));
    }

    pub fn environment(&self) -> Environment<'_> {
        Environment {
            disk: self.platform.disk(),
            layout: &self.layout,
            profile: &self.profile,
            service: self,
            agent: self,
            clock: self,
        }
    }

    pub fn updater(&self) -> Updater<'_> {
        Updater {
            environment: self.environment(),
            random: |_| 0,
            packages: self,
            woken_for: {
                let woken_for = self.state.lock().unwrap().woken_for;
                woken_for
                    .and_then(|attempt| last_status(self.platform.disk(), &self.layout).new_wake(attempt))
            },
        }
    }

    /// The version that the pointer names.
    pub fn active(&self) -> Option<String> {
        active_version(self.platform.disk(), &self.layout).unwrap().map(|version| version.to_string())
    }

    /// Starts an agent of the version that the pointer names.
    pub fn start_agent(&self) {
        self.start_agent_of(&self.active().expect("a pointer"));
    }

    pub fn start_agent_of(&self, text: &str) {
        let version = version(text);
        self.platform.open_database(&self.layout.database(), &version);
        let mut state = self.state.lock().unwrap();
        state.starts += 1;
        let start = StartId(state.starts.to_string());
        state.running = Some(Running { version, start });
    }

    /// The updater looks at something: a moment at which the wall clock may be set.
    fn look(&self) {
        let mut state = self.state.lock().unwrap();
        state.looks += 1;
        let looks = state.looks;
        if let Some((_, seconds)) = state.jump.take_if(|(look, _)| *look == looks) {
            state.wall_offset += seconds;
        }
        if let Some((_, happens)) = state.beside.take_if(|(look, _)| *look <= looks) {
            happens(&mut state);
        }
        let is_free = state.held.load(Ordering::SeqCst) == 0;
        drop(state);
        self.start_supervised(is_free);
    }

    /// A supervisor starts its agent, unless an update is under way that expects that none runs.
    fn start_supervised(&self, is_free: bool) {
        let is_switching = self.platform.disk().kind(&self.layout.journal()).unwrap().is_some();
        let is_installed = active_version(self.platform.disk(), &self.layout).unwrap().is_some();
        let mut state = self.state.lock().unwrap();
        if state.starts_soon && is_free {
            state.is_unmanaged = false;
            if !is_switching && is_installed {
                state.starts_soon = false;
                drop(state);
                self.start_agent();
            }
        }
    }

    fn does<T>(&self, what: &str, deed: impl FnOnce() -> T) -> Result<T, HostError> {
        self.look();
        self.platform.does(what).map_err(|error| HostError(error.to_string()))?;
        Ok(deed())
    }

    /// As an archive would come: the version is complete last.
    fn unpack(&self, version: &Version) -> io::Result<()> {
        let (disk, folder) = (self.platform.disk(), self.layout.version(version));
        if disk.kind(&folder)?.is_some() {
            disk.remove_dir_all(&folder)?;
        }
        for part in ["bin", "etc/systemd"] {
            create_dirs_durably(disk, &folder.join(part), 0o755)?;
        }
        for binary in &self.profile.binaries {
            write_durably(disk, &folder.join("bin").join(binary), version.to_string().as_bytes(), 0o755)?;
        }
        for unit in self.profile.updater_units.iter().map(|unit| &unit.name).chain([&self.profile.unit]) {
            let text = format!("{unit} of {version}");
            write_durably(disk, &folder.join("etc/systemd").join(unit), text.as_bytes(), 0o644)?;
        }
        write_durably(disk, &folder.join("sha256"), b"good", 0o644)
    }
}

impl<G: Platform> Service for Host<G> {
    fn manager(&self) -> Result<Manager, HostError> {
        self.look();
        let state = self.state.lock().unwrap();
        Ok(match state.is_unmanaged {
            true => Manager::Absent(Box::new(Holding::new(&state.held))),
            false => Manager::Present,
        })
    }

    fn is_enabled(&self) -> Result<bool, HostError> {
        Ok(self.state.lock().unwrap().is_enabled)
    }

    fn set_enabled(&self, _: bool) -> Result<(), HostError> {
        Ok(())
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        self.does("ask how the service is", || {
            let state = self.state.lock().unwrap();
            match state.running {
                Some(_) if !state.is_unmanaged && !state.runs_by_hand => ServiceState::Running,
                _ if state.is_failing => ServiceState::Failing,
                _ if state.is_queued => ServiceState::Queued,
                _ => ServiceState::Stopped,
            }
        })
    }

    fn reload(&self) -> Result<(), HostError> {
        let mut state = self.state.lock().unwrap();
        if std::mem::take(&mut state.stops_meanwhile) {
            state.running = None;
            return Err(HostError("no agent runs".into()));
        }
        let ignores = state.ignores_reload || state.is_unmanaged;
        drop(state);
        self.does("reload the agent", || {
            if !ignores {
                self.start_agent();
            }
        })
    }

    fn stop(&self) -> Result<(), HostError> {
        self.does("stop the agent", || {
            let mut state = self.state.lock().unwrap();
            if !state.ignores_stop {
                state.running = None;
            }
        })
    }

    fn start(&self) -> Result<(), HostError> {
        self.does("start the agent", || {
            if !self.state.lock().unwrap().is_unmanaged {
                self.start_agent();
            }
        })
    }

    fn refresh(&self) -> Result<(), HostError> {
        self.does("have the units read again", || {
            if std::mem::take(&mut self.state.lock().unwrap().starts_meanwhile) {
                self.start_agent();
            }
        })
    }

    fn set_updates(&self, _: bool) -> Result<(), HostError> {
        self.does("start the timer", || ())
    }

    fn mark_run(&self) -> Option<RunMark> {
        Some(RunMark { ended: self.state.lock().unwrap().starts, ..RunMark::default() })
    }

    fn end_since(&self, mark: &RunMark) -> Option<RunEnd> {
        let state = self.state.lock().unwrap();
        let is_broken = state.running.as_ref().is_some_and(|agent| state.broken.contains(&agent.version));
        let crash = state.crash.as_ref().filter(|_| is_broken && state.starts > mark.ended);
        crash.map(|(end, _)| *end)
    }

    fn lines_since(&self, _: &RunMark) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.crash.as_ref().map(|(_, lines)| lines.clone()).unwrap_or_default()
    }
}

impl<G: Platform> Agent for Host<G> {
    fn version_of(&self, binary: &Path) -> Result<Version, ProbeError> {
        let name = binary.file_name().unwrap().to_string_lossy();
        let interrupted = |error: String| ProbeError::Interrupted(error);
        self.does(&format!("run {name} version"), || ()).map_err(|error| interrupted(error.to_string()))?;
        if self.state.lock().unwrap().kills_probes {
            return Err(ProbeError::Interrupted("it was killed from outside: signal: 9 (SIGKILL)".into()));
        }
        let bytes = self.platform.disk().read(binary).map_err(|error| interrupted(error.to_string()))?;
        String::from_utf8(bytes).unwrap().parse().map_err(|_| ProbeError::Unusable("it does not run".into()))
    }

    fn condition(&self) -> Option<Condition> {
        self.look();
        let state = self.state.lock().unwrap();
        let running = state.running.as_ref().filter(|running| !state.broken.contains(&running.version))?;
        let (version, start) = (running.version.clone(), running.start.clone());
        Some(Condition { version, start, connected: !state.is_cut_off, reason: None })
    }

    fn lock_out(&self) -> Result<Guard, HostError> {
        let state = self.state.lock().unwrap();
        match &state.running {
            Some(running) => Err(HostError(format!("an agent of {} runs", running.version))),
            None => Ok(Box::new(Holding::new(&state.held))),
        }
    }

    fn identity(&self) -> IdentityFacts {
        if self.state.lock().unwrap().hides_identity {
            return IdentityFacts::default();
        }
        let valid_until = Some("2099-01-01T00:00:00Z".parse().unwrap());
        IdentityFacts { valid_until, issuer: Some(ISSUER.into()) }
    }

    fn trusted_issuers(&self) -> Vec<String> {
        vec![ISSUER.into()]
    }
}

impl<G: Platform> Clock for Host<G> {
    fn now(&self) -> Timestamp {
        self.look();
        let state = self.state.lock().unwrap();
        let passed = i64::try_from(state.milliseconds).unwrap() + 1000 * state.wall_offset;
        Timestamp::from_millisecond(1_700_000_000_000 + passed).unwrap()
    }

    fn uptime(&self) -> Duration {
        self.look();
        Duration::from_millis(self.state.lock().unwrap().milliseconds)
    }

    fn boot_id(&self) -> String {
        "a boot".into()
    }

    fn sleep(&self, length: Duration) {
        self.state.lock().unwrap().milliseconds += u64::try_from(length.as_millis()).unwrap();
    }
}

impl<G: Platform> Connector for Host<G> {
    fn default_proxy(&self) -> Result<Option<String>, HostError> {
        Ok(self.state.lock().unwrap().agent_proxy.map(str::to_owned))
    }

    fn connect(&self, endpoint: &Endpoint) -> Result<Box<dyn ControlPlane + '_>, HostError> {
        self.state.lock().unwrap().asked.push(endpoint.proxy.clone());
        Ok(Box::new(Client(self)))
    }
}

/// The control plane of a test is the host itself.
#[derive(Debug)]
struct Client<'a, G>(&'a Host<G>);

impl<G: Platform> ControlPlane for Client<'_, G> {
    fn find(&self) -> Result<Answer, HostError> {
        let state = self.0.state.lock().unwrap();
        if let Some(reason) = state.unreachable {
            return Err(HostError(reason.into()));
        }
        let (version, attempt) =
            (state.wanted.clone().expect("a version that is wanted"), state.attempt.max(1));
        let auto_update = !state.not_due;
        let attempt = if auto_update { attempt } else { 0 };
        let withheld = state.withheld.filter(|_| !self.0.has_joined()).map(str::to_owned);
        let jitter_seconds = state.jitter_seconds;
        Ok(Answer { version, edition: Edition::Oss, auto_update, jitter_seconds, attempt, withheld })
    }

    fn find_for_new_host(&self) -> Result<Answer, HostError> {
        let answer = self.find()?;
        let state = self.0.state.lock().unwrap();
        let version = state.wanted_by_new.clone().unwrap_or(answer.version);
        Ok(Answer { version, attempt: 0, withheld: state.withheld.map(str::to_owned), ..answer })
    }

    fn fetch(&self, answer: &Answer) -> Result<(), FetchError> {
        if let Some(reason) = self.0.state.lock().unwrap().no_download {
            return Err(HostError(reason.into()).into());
        }
        self.0.unpack(&answer.version).map_err(|error| HostError(error.to_string()).into())
    }
}

impl<G: Platform> Packages for Host<G> {
    fn is_installed(&self, _: &str) -> Result<bool, HostError> {
        Ok(false)
    }

    fn purge(&self, _: &str) -> Result<(), HostError> {
        Ok(())
    }
}
