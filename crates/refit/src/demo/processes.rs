//! The child processes of the demo: started, watched for unexpected exits, and ended with the demo.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use refit_update::CHILD_COMMAND;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

use crate::exit::Failure;

/// How often processes are polled.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Time limit after SIGKILL.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// So much of a log is shown.
const END_OF_LOG: u64 = 2000;
/// Environment variables of the user's own services, which hosts of the demo must not inherit.
const FOREIGN: [&str; 4] = ["NOTIFY_SOCKET", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID"];

/// All started processes. The kernel kills each when this process ends.
#[derive(Debug)]
pub(super) struct Processes {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    name: String,
    lasts: Lasts,
    child: Child,
    log: PathBuf,
}

/// The expected lifetime of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Until it has done its one thing.
    UntilDone,
    /// Until it is told to end.
    UntilTold,
}

/// One that was started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started(u32);

impl Processes {
    /// Makes this process the subreaper, so that it can wait for orphaned descendants.
    pub(super) fn new() -> Result<Self, Failure> {
        set_child_subreaper(Some(rustix::process::getpid())).map_err(Failure::failed)?;
        Ok(Self { members: Vec::new() })
    }

    /// Starts this very program under that name. To be called on the main thread: the kernel takes the end of the
    /// thread for the end of the parent.
    pub(super) fn start(
        &mut self,
        name: &str,
        lasts: Lasts,
        called: &str,
        arguments: &[&OsStr],
        log: &Path,
    ) -> Result<Started, Failure> {
        let failed = |error| Failure::failed(format!("{name} cannot be started: {error}"));
        let output = File::options().create(true).append(true).open(log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        // Works even if the binary was rebuilt meanwhile.
        let own = "/proc/self/exe";
        let mut command = Command::new(own);
        command.arg0("refit-update").arg(CHILD_COMMAND).arg(std::process::id().to_string());
        command.args([called, own, "--"]).args(arguments);
        for (variable, _) in std::env::vars_os() {
            if variable.as_encoded_bytes().starts_with(b"REFIT_") {
                command.env_remove(variable);
            }
        }
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        // Everything is local, so proxies are bypassed.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        // Signals of the terminal are for this process only.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let child = command.spawn().map_err(failed)?;
        let started = Started(child.id());
        self.members.push(Member { name: name.to_owned(), lasts, child, log: log.to_owned() });
        Ok(started)
    }

    /// The result of a one-shot process, if it has ended.
    pub(super) fn take_if_done(&mut self, started: Started) -> Result<Option<Result<(), Failure>>, Failure> {
        let Some(at) = self.members.iter().position(|member| member.child.id() == started.0) else {
            return Ok(None);
        };
        let Some(status) = self.members[at].child.try_wait().map_err(Failure::failed)? else {
            return Ok(None);
        };
        let member = self.members.remove(at);
        Ok(Some(if status.success() { Ok(()) } else { Err(member.failure(status)) }))
    }

    /// Fails if a long-running process has ended unexpectedly.
    pub(super) fn all_live(&mut self) -> Result<(), Failure> {
        for member in self.members.iter_mut().filter(|member| member.lasts == Lasts::UntilTold) {
            if let Some(status) = member.child.try_wait().map_err(Failure::failed)? {
                return Err(member.failure(status));
            }
        }
        Ok(())
    }

    /// Ends all processes and their descendants, and waits for them.
    pub(super) async fn end(&mut self) -> Result<(), Failure> {
        self.tell(Signal::TERM);
        if !self.are_gone_within(GRACE).await {
            self.tell(Signal::KILL);
            self.are_gone_within(KILLED_WITHIN).await;
        }
        let end = Instant::now() + KILLED_WITHIN;
        while self.has_children() {
            if Instant::now() > end {
                return Err(Failure::failed(
                    "something that the demonstration started does not end; see `ps`",
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    fn tell(&mut self, signal: Signal) {
        for member in &mut self.members {
            let pid = i32::try_from(member.child.id()).ok().and_then(Pid::from_raw);
            // The id of a process that was not waited for cannot be reused.
            if let (Some(pid), Ok(None)) = (pid, member.child.try_wait()) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    async fn are_gone_within(&mut self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.members.iter_mut().any(|member| matches!(member.child.try_wait(), Ok(None))) {
            if Instant::now() > end {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        true
    }

    /// Whether any child is left, including adopted ones.
    fn has_children(&self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

impl Member {
    fn failure(&self, status: ExitStatus) -> Failure {
        let log = end_of(&self.log).unwrap_or_default();
        Failure::failed(format!("{} ended ({status}); the end of its log:\n{}", self.name, log.trim_end()))
    }
}

fn end_of(log: &Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END_OF_LOG)))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
