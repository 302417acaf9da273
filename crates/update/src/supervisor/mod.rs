//! `refit-update supervise`: the service manager where there is no systemd, in containers and where several hosts share
//! one machine. Runs in the foreground; `machine` decides, this module carries out.

mod agent_output;
mod children;
mod enabled_flag;
mod machine;
pub(crate) mod protocol;
mod socket;
mod wake_file;

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::host::ServiceState;
use crate::service::Supervised;
use crate::{Layout, Lock, LockError, Profile, RealDisk, RunEnd, Unproved};
use agent_output::{AgentOutput, OutputReader};
pub use children::{CHILD_COMMAND, ChildProgram};
use children::{Children, ended_on_request, handled_signals};
use enabled_flag::EnabledFlag;
use machine::{Action, ChildKind, Context, Event, Machine};
use protocol::{Request, Response, RunReport};
use socket::ControlSocket;
use wake_file::WakeFile;

/// How often the wake file and the time are checked.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// How long an updater may hold the supervisor's lock: a switch without an agent is a few renames.
const SWITCH_WITHIN: Duration = Duration::from_secs(60);
const LOCK_POLL_EVERY: Duration = Duration::from_millis(20);

/// What is supervised, and how.
#[derive(Debug)]
pub struct Supervision<'a> {
    /// Every path that the updater uses.
    pub layout: &'a Layout,
    /// The agent that is managed.
    pub profile: &'a Profile,
    /// The arguments of the agent.
    pub arguments: Vec<OsString>,
    /// The arguments before the name of a command that select this agent.
    pub global: Vec<OsString>,
    /// How often the updater runs without being woken.
    pub every: Duration,
}

/// Why the supervisor cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Another supervisor runs the agent.
    #[error(
        "another supervisor runs the agent of {path}; stop it, or give this one a --root or an \
         --install-suffix of its own", path = .0.display()
    )]
    Taken(PathBuf),
    /// The data directory is too deep.
    #[error(
        "{path} is {length} bytes long, and the path of a socket may have {most}: choose a shorter \
         directory", path = .path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
        /// The limit of the kernel.
        most: usize,
    },
    /// The disk refused.
    #[error("{path} cannot be used: {source}", path = .path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Signals cannot be waited for.
    #[error("the supervisor cannot wait for signals: {0}")]
    Signals(io::Error),
}

/// What the main loop of the supervisor waits for.
enum Input {
    Signal(Signal),
    Request(Request, Sender<Response>),
}

/// The path of the supervisor's socket.
pub(crate) fn control_socket(layout: &Layout) -> PathBuf {
    layout.data().join("supervisor.sock")
}

/// The lock that a supervisor holds for as long as it lives. An updater that switches versions where there is no
/// supervisor holds it too, so that none starts an agent meanwhile.
pub(crate) fn supervisor_lock(layout: &Layout) -> PathBuf {
    layout.data().join("supervisor.lock")
}

/// Takes the supervisor's lock; waits for an updater that holds it.
fn take_lock(layout: &Layout) -> Result<Lock, SupervisorError> {
    let (path, supervised) = (supervisor_lock(layout), Supervised::new(layout));
    let end = Instant::now() + SWITCH_WITHIN;
    let mut is_told = false;
    loop {
        match Lock::take(&path) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { process, .. }) => {
                if supervised.is_listening() || Instant::now() >= end {
                    return Err(SupervisorError::Taken(layout.data()));
                }
                if !is_told {
                    tracing::info!(process, "waiting for an updater that is switching versions");
                    is_told = true;
                }
                thread::sleep(LOCK_POLL_EVERY);
            }
            Err(LockError::Disk { path, source }) => return Err(SupervisorError::Disk { path, source }),
        }
    }
}

/// Runs the agent until the process is asked to end. Must be called on the main thread before other threads exist: it
/// blocks the signals of the process.
pub fn supervise(supervision: &Supervision<'_>) -> Result<(), SupervisorError> {
    let data = supervision.layout.data();
    let _lock = take_lock(supervision.layout)?;
    let (sender, inputs) = channel();
    forward_signals(sender.clone()).map_err(SupervisorError::Signals)?;
    let enabled = EnabledFlag(data.join("supervisor.disabled"));
    let socket = ControlSocket::bind(&control_socket(supervision.layout))?;
    let mut supervisor = Supervisor {
        agent: supervision.layout.outside(&supervision.layout.bin_target(&supervision.profile.binaries[0])),
        machine: Machine::new(enabled.is_set(), supervision.every, Instant::now(), rand::random::<f64>),
        wake_file: WakeFile::new(supervision.layout.versions().join("wake")),
        children: Children::default(),
        stopping: Vec::new(),
        output: AgentOutput::default(),
        reader: None,
        ended: 0,
        last_end: None,
        commands: 0,
        supervision,
        enabled,
    };
    if !supervisor.enabled.is_set() {
        tracing::info!("the agent is disabled and waits to be started");
    }
    supervisor.handle(Event::Tick);
    if supervisor.machine.is_waiting_for_a_version() {
        let data = data.display();
        tracing::info!(%data, "no version is installed yet; the agent starts when `refit-update enable` has installed one");
    }
    socket.serve(&sender);
    supervisor.run(&inputs);
    Ok(())
}

/// Blocks the signals in all threads and waits for them in one, so that no handler is needed.
fn forward_signals(inputs: Sender<Input>) -> io::Result<()> {
    let handled_signals = handled_signals();
    handled_signals.thread_block()?;
    thread::spawn(move || {
        while let Ok(signal) = handled_signals.wait() {
            if inputs.send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

struct Supervisor<'a> {
    supervision: &'a Supervision<'a>,
    agent: PathBuf,
    machine: Machine,
    children: Children,
    wake_file: WakeFile,
    enabled: EnabledFlag,
    /// Senders of stop requests, answered when the agent has ended.
    stopping: Vec<Sender<Response>>,
    /// What the agent writes, over all of its processes.
    output: AgentOutput,
    /// Reads what the present process writes.
    reader: Option<OutputReader>,
    /// Processes of the agent that have ended, and how the last of them did.
    ended: u64,
    last_end: Option<RunEnd>,
    /// Commands of the updater that were started.
    commands: u64,
}

impl Supervisor<'_> {
    fn run(&mut self, inputs: &Receiver<Input>) {
        while !self.machine.is_over() {
            match inputs.recv_timeout(POLL_EVERY) {
                Ok(Input::Request(request, reply)) => self.handle_request(request, reply),
                Ok(Input::Signal(Signal::SIGHUP)) => self.handle(Event::Reload),
                Ok(Input::Signal(Signal::SIGCHLD)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Input::Signal(signal)) => {
                    tracing::info!(%signal, "the supervisor was asked to end");
                    self.handle(Event::End);
                }
                Err(RecvTimeoutError::Disconnected) => self.handle(Event::End),
            }
            self.reap_children();
            if self.wake_file.take_change() {
                self.handle(Event::Wake);
            }
            self.handle(Event::Tick);
        }
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let context = Context { now: Instant::now(), installed: self.agent.exists() };
            for action in self.machine.on(event, context) {
                events.extend(self.carry_out(action));
            }
        }
        if self.children.agent_is_gone() {
            self.answer_stop_requests();
        }
    }

    /// Carries out an action; returns the event that it causes at once, if any.
    fn carry_out(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Recover => match another_agent(&self.supervision.layout.data()) {
                Some(pid) => {
                    tracing::warn!(
                        pid,
                        "another agent uses the data directory; the supervisor's agent waits until it ends"
                    );
                    Some(Event::Taken)
                }
                None => self.run_own(ChildKind::Recovery, "recover").err().map(|_| self.recovery_event()),
            },
            Action::StartAgent => self.start_agent().err().map(|_| Event::AgentEnded { on_request: false }),
            Action::StartUpdater => {
                self.run_own(ChildKind::Updater, "update").err().map(|_| Event::UpdaterEnded)
            }
            Action::Signal(child, signal) => {
                self.children.signal(child, signal);
                None
            }
        }
    }

    /// Runs a command of this program.
    fn run_own(&mut self, child: ChildKind, command: &str) -> io::Result<()> {
        let own = Path::new("/proc/self/exe");
        let arguments: Vec<_> = self.supervision.global.iter().cloned().chain([command.into()]).collect();
        // As systemd does, so that starts are told apart. One of a unit that the supervisor runs in would always be the same.
        self.commands += 1;
        let invocation = PathBuf::from(format!("{}-{}", std::process::id(), self.commands));
        let environment = [("INVOCATION_ID", invocation)];
        let started =
            self.children.start(child, own, OsStr::new("refit-update"), &arguments, &environment, false);
        started
            .map(drop)
            .inspect_err(|error| tracing::error!(%error, command, "the updater cannot be started"))
    }

    /// The path through `active` is left unresolved: a reload then re-executes the new version.
    fn start_agent(&mut self) -> io::Result<()> {
        let Supervision { layout, profile, arguments, .. } = self.supervision;
        let is_own = profile.name == "refit";
        let mut environment = Vec::new();
        if is_own {
            // The agent and its updater must use the same directory.
            environment.push(("REFIT_DATA_DIR", layout.data()));
            let config = layout.outside(&profile.config);
            if std::env::var_os("REFIT_CONFIG").is_none() && config.exists() {
                environment.push(("REFIT_CONFIG", config));
            }
        }
        let agent = self.agent.clone();
        let started =
            self.children.start(ChildKind::Agent, &agent, agent.as_os_str(), arguments, &environment, is_own);
        let (stdout, stderr) = self.children.take_agent_pipes();
        self.reader = Some(self.output.read(stdout, stderr));
        match started {
            Ok(pid) => tracing::info!(pid, agent = %agent.display(), "the agent is started"),
            Err(ref error) => {
                tracing::error!(%error, agent = %agent.display(), "the agent cannot be started")
            }
        }
        started.map(drop)
    }

    fn recovery_event(&self) -> Event {
        let layout = self.supervision.layout;
        let unproved = Unproved::way_back(&RealDisk, layout).is_ok_and(|way_back| way_back.is_some());
        Event::Recovered { settled: !layout.journal().exists(), unproved }
    }

    fn reap_children(&mut self) {
        while let Some((child, status)) = self.children.reap() {
            match child {
                ChildKind::Agent => {
                    if let Some(reader) = self.reader.take() {
                        reader.finish();
                    }
                    (self.ended, self.last_end) = (self.ended + 1, Some(status.into()));
                    self.answer_stop_requests();
                    self.handle(Event::AgentEnded { on_request: ended_on_request(status) });
                    let again = self.machine.starts_again_at();
                    let again = again.map(|at| at.saturating_duration_since(Instant::now()));
                    match again {
                        Some(after) => {
                            tracing::warn!(%status, ?after, "the agent failed and is started again")
                        }
                        None => tracing::info!(%status, "the agent ended"),
                    }
                }
                ChildKind::Recovery => {
                    if !status.success() {
                        tracing::error!(%status, "an interrupted update was not rolled back; the agent is started anyway");
                    }
                    self.handle(self.recovery_event());
                }
                ChildKind::Updater => {
                    if !status.success() {
                        tracing::warn!(%status, "the updater failed; see `refit-update status`");
                    }
                    self.handle(Event::UpdaterEnded);
                }
            }
        }
    }

    fn handle_request(&mut self, request: Request, reply: Sender<Response>) {
        let answer = match request {
            Request::State => Response::State(self.machine.state()),
            Request::IsEnabled => Response::Enabled(self.enabled.is_set()),
            Request::Refresh => Response::Done,
            Request::Run { since } => {
                let (written, lines) = self.output.since(since);
                Response::Run(RunReport { ended: self.ended, last_end: self.last_end, written, lines })
            }
            Request::Stop => {
                self.stopping.push(reply);
                return self.handle(Event::Stop);
            }
            _ if self.machine.is_ending() => Response::Failed("the supervisor is ending".into()),
            Request::SetEnabled(on) => match self.enabled.set(on) {
                Ok(()) => Response::Done,
                Err(error) => {
                    Response::Failed(format!("{} cannot be used: {error}", self.enabled.0.display()))
                }
            },
            Request::Reload if self.machine.state() == ServiceState::Stopped => {
                Response::Failed("no agent runs that could be reloaded; start it".into())
            }
            Request::Reload => self.handle_and_confirm(Event::Reload),
            Request::Start => self.handle_and_confirm(Event::Start),
            Request::SetUpdates(on) => self.handle_and_confirm(Event::SetUpdates(on)),
        };
        let _ = reply.send(answer);
    }

    fn handle_and_confirm(&mut self, event: Event) -> Response {
        self.handle(event);
        Response::Done
    }

    fn answer_stop_requests(&mut self) {
        if self.stopping.is_empty() {
            return;
        }
        let answer = match another_agent(&self.supervision.layout.data()) {
            Some(pid) => Response::Failed(format!(
                "the supervisor's agent does not run, and another (pid {pid}) uses its data directory; stop that one"
            )),
            None => Response::Done,
        };
        for reply in self.stopping.drain(..) {
            let _ = reply.send(answer.clone());
        }
    }
}

/// The process id of an agent that uses the data directory, found by its lock. Only valid while the supervisor's own
/// agent does not run.
fn another_agent(data: &Path) -> Option<String> {
    let path = data.join("agent.pid");
    let file = File::open(&path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let pid = std::fs::read_to_string(&path).unwrap_or_default();
            Some(pid.trim().parse::<u32>().map_or_else(|_| "unknown".into(), |pid| pid.to_string()))
        }
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}
