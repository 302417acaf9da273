//! Runs the program of a label: with a time limit, in a process group that is ended as a whole.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::value::{self, Failure};
use super::{LabelCommand, StopSignal};
use crate::notify;

/// How long a label's program may take; then it is ended, with all that it started.
pub const COMMAND_TIME_LIMIT: Duration = Duration::from_secs(10);

/// How much a label's program may print; more is a mistake in it, not a value.
pub const MAX_OUTPUT_BYTES: usize = 4096;

/// A killed process ends at once, unless it hangs in the kernel: then it is not waited for.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// Settings of Refit itself, the join token among them, which programs must not see.
const OWN_VARIABLES: &str = "REFIT_";

/// Runs the program once, to its end or to the limit, or until it is to stop; gone and reaped when this
/// returns.
pub(super) async fn run(label: Arc<LabelCommand>, mut stop: StopSignal) -> Result<String, Failure> {
    let limit = COMMAND_TIME_LIMIT;
    let mut group = ProcessGroup::start(&label.command).map_err(Failure::NotStarted)?;
    let stdout = group.child.stdout.take();
    let work = async {
        let (output, ()) = tokio::try_join!(read(stdout), group.leader_ended())?;
        Ok(output)
    };
    let output = tokio::select! {
        done = timeout(limit, work) => done.unwrap_or(Err(Failure::TimedOut(limit))),
        () = stop.wait() => Err(Failure::Stopped),
    };
    group.kill();
    let status = group.reap().await;
    let output = output?;
    match status {
        Some(status) if status.success() => value::parse(&output),
        Some(status) => Err(Failure::Ended(status)),
        None => Err(Failure::TimedOut(limit)),
    }
}

async fn read(stdout: Option<ChildStdout>) -> Result<Vec<u8>, Failure> {
    let mut output = Vec::new();
    if let Some(stdout) = stdout {
        let limit = MAX_OUTPUT_BYTES as u64 + 1;
        stdout.take(limit).read_to_end(&mut output).await.map_err(Failure::Unreadable)?;
    }
    if output.len() > MAX_OUTPUT_BYTES { Err(Failure::TooMuch(MAX_OUTPUT_BYTES)) } else { Ok(output) }
}

/// A program and what it starts (unless that leaves its process group on purpose). Dropping it ends them.
struct ProcessGroup {
    child: Child,
    /// Until the leader has been reaped no other process or group can have this id.
    id: Option<Pid>,
}

impl ProcessGroup {
    fn start(command: &[String]) -> io::Result<Self> {
        let [program, arguments @ ..] = command else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env_remove(notify::SOCKET_VARIABLE);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(OWN_VARIABLES) {
                command.env_remove(name);
            }
        }
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, id })
    }

    /// Waits for the program's own end without reaping it, and ends what it left behind: that may hold
    /// the output open for ever.
    async fn leader_ended(&self) -> Result<(), Failure> {
        let Some(id) = self.id else { return Ok(()) };
        let mut children = signal(SignalKind::child()).map_err(Failure::Unreadable)?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(id), options) {
            children.recv().await;
        }
        self.kill();
        Ok(())
    }

    fn kill(&self) {
        if let Some(id) = self.id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    async fn reap(&mut self) -> Option<std::process::ExitStatus> {
        let status = timeout(KILLED_WITHIN, self.child.wait()).await.ok()?.ok()?;
        self.id = None;
        Some(status)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
