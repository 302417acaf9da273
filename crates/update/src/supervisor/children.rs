//! The processes that the supervisor starts, signals and reaps.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getppid};

use super::machine::{ChildKind, KillSignal};

/// The hidden command by which the supervisor starts its children; see [`ChildProgram`].
pub const CHILD_COMMAND: &str = "tied";

/// A program that does not outlive the supervisor, however the supervisor ends.
///
/// Only a process itself can set its parent-death signal, so the supervisor starts its own executable, which sets the
/// signal and then executes the program: the setting survives this and the agent's own re-execution (unless the file is
/// setuid or has capabilities). The signal is SIGKILL, because the next supervisor must not find an agent that is still
/// stopping; agents and updaters survive SIGKILL by design.
#[derive(Debug)]
pub struct ChildProgram {
    /// The supervisor.
    pub parent: u32,
    /// The name of the program, as its first argument.
    pub name: OsString,
    /// Its path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Whether SIGHUP stays blocked until the program unblocks it, as Refit's own agent does.
    pub hangup_waits: bool,
}

impl ChildProgram {
    /// Executes the program; returns only on an error.
    pub fn run(&self) -> Result<Infallible, io::Error> {
        use rustix::process::{Signal as Deadly, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Deadly::KILL))?;
        if u32::try_from(getppid().as_raw()) != Ok(self.parent) {
            return Err(io::Error::other("the supervisor that started this is gone"));
        }
        // Children inherit the signals that the supervisor blocks.
        let mut blocked = handled_signals();
        if self.hangup_waits {
            blocked.remove(Signal::SIGHUP);
        }
        blocked.thread_unblock()?;
        Err(Command::new(&self.program).arg0(&self.name).args(&self.arguments).exec())
    }
}

/// The signals that the supervisor waits for.
pub(super) fn handled_signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect()
}

/// The processes of the supervisor.
#[derive(Debug, Default)]
pub(super) struct Children {
    agent: Option<Child>,
    recovery: Option<Child>,
    updater: Option<Child>,
}

impl Children {
    fn slot(&mut self, child: ChildKind) -> &mut Option<Child> {
        match child {
            ChildKind::Agent => &mut self.agent,
            ChildKind::Recovery => &mut self.recovery,
            ChildKind::Updater => &mut self.updater,
        }
    }

    /// Whether neither the agent nor its recovery runs.
    pub(super) fn agent_is_gone(&self) -> bool {
        self.agent.is_none() && self.recovery.is_none()
    }

    /// Starts a program. Must be called from a thread that lives as long as the process: the kernel sends the
    /// parent-death signal when that thread ends.
    pub(super) fn start(
        &mut self,
        child: ChildKind,
        program: &Path,
        name: &OsStr,
        arguments: &[OsString],
        environment: &[(&str, PathBuf)],
        hangup_waits: bool,
    ) -> io::Result<u32> {
        // Works even if this version has been removed from the disk.
        let mut command = Command::new(OWN_EXECUTABLE);
        command.arg0("refit-update").arg(CHILD_COMMAND);
        if hangup_waits {
            command.arg("--hangup-waits");
        }
        command.arg(std::process::id().to_string()).arg(name).arg(program).arg("--").args(arguments);
        // Signals of a terminal go to the supervisor alone, which forwards them.
        command.envs(environment.iter().cloned()).stdin(Stdio::null()).process_group(0);
        if child == ChildKind::Agent {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let process = command.spawn()?;
        let pid = process.id();
        *self.slot(child) = Some(process);
        Ok(pid)
    }

    /// The pipes of an agent that was just started.
    pub(super) fn take_agent_pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        let agent = self.agent.as_mut();
        agent.map_or((None, None), |agent| (agent.stdout.take(), agent.stderr.take()))
    }

    pub(super) fn signal(&mut self, child: ChildKind, signal: KillSignal) {
        let signal = match signal {
            KillSignal::Hangup => Signal::SIGHUP,
            KillSignal::Terminate => Signal::SIGTERM,
            KillSignal::Kill => Signal::SIGKILL,
        };
        // The process is not reaped yet, so its id cannot have been reused.
        if let Some(pid) = self.slot(child).as_ref().and_then(id) {
            let _ = kill(pid, signal);
        }
    }

    /// Reaps one child that has ended, and returns its exit status.
    pub(super) fn reap(&mut self) -> Option<(ChildKind, ExitStatus)> {
        for child in [ChildKind::Agent, ChildKind::Recovery, ChildKind::Updater] {
            let slot = self.slot(child);
            let Some(process) = slot else { continue };
            let Some(pid) = id(process) else { continue };
            if matches!(waitid(Id::Pid(pid), peek()), Ok(WaitStatus::StillAlive)) {
                continue;
            }
            if child == ChildKind::Agent {
                // Kills what the agent has left behind, while its id cannot be reused.
                let _ = killpg(pid, Signal::SIGKILL);
            }
            let status = process.wait().unwrap_or_else(|_| ExitStatus::from_raw(0x100));
            *slot = None;
            return Some((child, status));
        }
        reap_orphans(&[&self.agent, &self.recovery, &self.updater]);
        None
    }
}

const OWN_EXECUTABLE: &str = "/proc/self/exe";

fn id(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().map(Pid::from_raw)
}

/// Reports a process that has ended without reaping it.
fn peek() -> WaitPidFlag {
    WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG
}

/// Reaps processes that the supervisor has inherited as the first process of a container.
fn reap_orphans(own: &[&Option<Child>]) {
    while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) = waitid(Id::All, peek()) {
        if own.iter().any(|child| child.as_ref().and_then(id) == Some(pid)) {
            return;
        }
        if matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Err(Errno::ECHILD)) {
            return;
        }
    }
}

/// Whether a process ended without a failure: like `Restart=on-failure`, except that an uncaught SIGHUP or SIGPIPE is a
/// failure.
pub(super) fn ended_on_request(status: ExitStatus) -> bool {
    let asked = [Signal::SIGTERM as i32, Signal::SIGINT as i32];
    status.success() || status.signal().is_some_and(|signal| asked.contains(&signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_asked_to_end_did_not_fail() {
        for well in [0, libc_signal(Signal::SIGTERM), libc_signal(Signal::SIGINT)] {
            assert!(ended_on_request(ExitStatus::from_raw(well)), "{well}");
        }
        for badly in [0x100, 0x4600, libc_signal(Signal::SIGKILL), libc_signal(Signal::SIGHUP)] {
            assert!(!ended_on_request(ExitStatus::from_raw(badly)), "{badly}");
        }
    }

    /// The status of a process that the signal ended.
    fn libc_signal(signal: Signal) -> i32 {
        signal as i32
    }

    #[test]
    fn a_program_whose_supervisor_is_gone_is_not_started() {
        let child_program = ChildProgram {
            parent: std::process::id(),
            name: "true".into(),
            program: "/bin/true".into(),
            arguments: Vec::new(),
            hangup_waits: false,
        };
        let error = child_program.run().unwrap_err().to_string();
        assert!(error.contains("is gone"), "{error}");
        rustix::process::set_parent_process_death_signal(None).unwrap();
    }
}
