use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getppid};

use super::machine::{ChildKind, KillSignal};

/// The hidden command by which a supervisor starts everything; see [`ChildProgram`].
pub const CHILD_COMMAND: &str = "tied";

/// A program that does not outlive the supervisor, however that one ends.
///
/// Only a process itself can ask the kernel to be ended with its parent, so the supervisor starts its own
/// executable, which asks for that and then becomes the program: the request survives that, and the agent's
/// own re-execution too (unless the file is setuid or has capabilities). It is SIGKILL, because the next
/// supervisor must not meet an agent that takes its time; agents and updaters are made to survive it.
#[derive(Debug)]
pub struct ChildProgram {
    /// The supervisor.
    pub parent: u32,
    /// What the program is called.
    pub name: OsString,
    /// Where it is.
    pub program: PathBuf,
    /// What it is given.
    pub arguments: Vec<OsString>,
    /// Whether SIGHUP waits until the program is ready for it, as Refit's own agent has it.
    pub hangup_waits: bool,
}

impl ChildProgram {
    /// Becomes the program; returns only when that cannot be.
    pub fn run(&self) -> Result<Infallible, io::Error> {
        use rustix::process::{Signal as Deadly, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Deadly::KILL))?;
        if u32::try_from(getppid().as_raw()) != Ok(self.parent) {
            return Err(io::Error::other("the supervisor that started this is gone"));
        }
        // The supervisor blocks what it waits for, and its children inherit that.
        let mut blocked = handled_signals();
        if self.hangup_waits {
            blocked.remove(Signal::SIGHUP);
        }
        blocked.thread_unblock()?;
        Err(Command::new(&self.program).arg0(&self.name).args(&self.arguments).exec())
    }
}

/// The signals that a supervisor waits for.
pub(super) fn handled_signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect()
}

/// What a supervisor has running.
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

    /// Whether nothing runs that uses the agent's files.
    pub(super) fn agent_is_gone(&self) -> bool {
        self.agent.is_none() && self.recovery.is_none()
    }

    /// Starts a program. To be called from a thread that lasts as long as the process: the kernel takes the
    /// end of that thread for the end of the parent.
    pub(super) fn start(
        &mut self,
        child: ChildKind,
        program: &Path,
        name: &OsStr,
        arguments: &[OsString],
        environment: &[(&str, PathBuf)],
        hangup_waits: bool,
    ) -> io::Result<u32> {
        // Also when this version has been removed from the disk meanwhile.
        let mut command = Command::new(OWN_EXECUTABLE);
        command.arg0("refit-update").arg(CHILD_COMMAND);
        if hangup_waits {
            command.arg("--hangup-waits");
        }
        command.arg(std::process::id().to_string()).arg(name).arg(program).arg("--").args(arguments);
        // A terminal's signals are for the supervisor, which passes them on.
        command.envs(environment.iter().cloned()).stdin(Stdio::null()).process_group(0);
        let process = command.spawn()?;
        let pid = process.id();
        *self.slot(child) = Some(process);
        Ok(pid)
    }

    pub(super) fn signal(&mut self, child: ChildKind, signal: KillSignal) {
        let signal = match signal {
            KillSignal::Hangup => Signal::SIGHUP,
            KillSignal::Terminate => Signal::SIGTERM,
            KillSignal::Kill => Signal::SIGKILL,
        };
        // It is not reaped yet, so the id is its own.
        if let Some(pid) = self.slot(child).as_ref().and_then(id) {
            let _ = kill(pid, signal);
        }
    }

    /// One that has ended, and how.
    pub(super) fn reap(&mut self) -> Option<(ChildKind, ExitStatus)> {
        for child in [ChildKind::Agent, ChildKind::Recovery, ChildKind::Updater] {
            let slot = self.slot(child);
            let Some(process) = slot else { continue };
            let Some(pid) = id(process) else { continue };
            if matches!(waitid(Id::Pid(pid), peek()), Ok(WaitStatus::StillAlive)) {
                continue;
            }
            if child == ChildKind::Agent {
                // What it started and left behind, while the id is still its own.
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

/// Who has ended, without taking notice of it.
fn peek() -> WaitPidFlag {
    WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG
}

/// The first process of a container inherits what others left behind, and nobody else would reap_children that.
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

/// Whether whoever ended so was asked to: like `Restart=on-failure`, but that a SIGHUP or SIGPIPE that nobody
/// caught is a failure, too.
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
