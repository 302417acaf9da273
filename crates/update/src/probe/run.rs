//! Runs a program once, mostly a binary of a version, and returns its output. It may hang or print without end.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::http::one_line;
use crate::host::ProbeError;

/// How long a binary may take to report its version.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How long the rest of its output may take after it has ended.
const LAST_BYTES_WITHIN: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(20);
const MAX_KEPT_BYTES: usize = 64 * 1024;
const MAX_EXCERPT_CHARS: usize = 200;

/// The output of a program, if it succeeds in time. Processes that it has started are killed.
pub(crate) fn output_of(
    program: &Path,
    arguments: &[String],
    within: Duration,
) -> Result<Vec<u8>, ProbeError> {
    let shown = program.display();
    let failed = |error: io::Error| {
        let reason = format!("{shown} cannot be run: {error}");
        match is_lack_of_resources(&error) {
            true => ProbeError::Interrupted(reason),
            false => ProbeError::Unusable(reason),
        }
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let stdout = child.stdout.take().map(PipeOutput::read);
    let stderr = child.stderr.take().map(PipeOutput::read);
    let status = wait_or_kill(&mut child, within).map_err(failed)?;
    let text = |printed: Option<PipeOutput>| printed.map(PipeOutput::kept).unwrap_or_default();
    let complaint = |stderr: Option<PipeOutput>| match one_line(
        &String::from_utf8_lossy(&text(stderr)),
        MAX_EXCERPT_CHARS,
    ) {
        error if error.is_empty() => String::new(),
        error => format!(": {error}"),
    };
    match status {
        Some(status) if status.success() => Ok(text(stdout)),
        Some(status) if was_killed(status) => {
            let complaint = complaint(stderr);
            Err(ProbeError::Interrupted(format!("{shown} was killed from outside: {status}{complaint}")))
        }
        Some(status) => {
            Err(ProbeError::Unusable(format!("{shown} does not run: {status}{}", complaint(stderr))))
        }
        None => {
            let seconds = within.as_secs();
            let complaint = complaint(stderr);
            Err(ProbeError::Unusable(format!("{shown} did not end within {seconds} s{complaint}")))
        }
    }
}

/// Whether a program was ended by a signal that others send: the OOM killer, a service manager, a shutdown. A crash
/// (SIGSEGV, SIGABRT, SIGILL, …) is the program's own.
fn was_killed(status: ExitStatus) -> bool {
    let outside = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    status.signal().is_some_and(|signal| outside.contains(&signal))
}

/// Whether a program was not started because the host is out of memory, processes or files.
fn is_lack_of_resources(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::TXTBSY, Errno::IO];
    error.raw_os_error().is_some_and(|code| lacks.iter().any(|errno| errno.raw_os_error() == code))
}

/// The exit status of the child; nothing if it had to be killed. Its process group is killed in any case, and before the
/// child is reaped, while its id cannot be reused.
fn wait_or_kill(child: &mut Child, within: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("its process id is none"))?;
    let until = Instant::now() + within;
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = loop {
        match waitid(WaitId::Pid(pid), look) {
            Ok(Some(_)) => break true,
            Ok(None) | Err(rustix::io::Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(POLL_EVERY)
            }
            _ => break false,
        }
    };
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok(Some(status).filter(|_| ended))
}

/// The output of a pipe. It is read to its end so that the writer never blocks, and kept up to a limit.
struct PipeOutput {
    kept: Arc<Mutex<Vec<u8>>>,
    closed: Receiver<()>,
}

impl PipeOutput {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (close, closed) = channel();
        let shared = Arc::clone(&kept);
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        let room = MAX_KEPT_BYTES.saturating_sub(kept.len()).min(count);
                        kept.extend_from_slice(&buffer[..room]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = close.send(());
        });
        Self { kept, closed }
    }

    fn kept(self) -> Vec<u8> {
        let _ = self.closed.recv_timeout(LAST_BYTES_WITHIN);
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, within: Duration) -> Result<Vec<u8>, String> {
        let arguments = ["-c".to_owned(), script.to_owned()];
        output_of(Path::new("/bin/sh"), &arguments, within).map_err(|error| error.to_string())
    }

    #[test]
    fn what_fills_more_than_a_pipe_is_read_and_kept_up_to_a_limit() {
        let script = "echo 1.2.3; head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2";
        let output = run(script, PATIENCE).unwrap();
        assert!(output.starts_with(b"1.2.3\n\0") && output.len() == MAX_KEPT_BYTES, "{}", output.len());
    }

    #[test]
    fn what_a_failing_program_complains_of_is_told_in_one_line() {
        let error =
            run("echo 'no such\n\tlibrary' >&2; head -c 5000 /dev/zero | tr '\\0' x >&2; exit 3", PATIENCE);
        let error = error.unwrap_err();
        assert!(error.starts_with("/bin/sh does not run: exit status: 3: no such library xxx"), "{error}");
        assert!(error.len() < 250, "{error}");
    }

    /// The OOM killer and `kill -9` are nothing that the version did.
    #[test]
    fn who_is_killed_from_outside_is_not_to_blame_and_who_crashes_is() {
        let run = |script: &str| {
            let arguments = ["-c".to_owned(), script.to_owned()];
            output_of(Path::new("/bin/sh"), &arguments, PATIENCE).unwrap_err()
        };
        for signal in ["KILL", "TERM"] {
            let error = run(&format!("kill -s {signal} $$"));
            assert!(matches!(error, ProbeError::Interrupted(_)), "{signal}: {error:?}");
        }
        // Whoever runs the tests may ignore these, and so would a shell.
        for signal in [Signal::INT, Signal::HUP] {
            assert!(was_killed(ExitStatus::from_raw(signal.as_raw())), "{signal:?}");
        }
        for script in ["kill -s SEGV $$", "kill -s ABRT $$", "kill -s ILL $$", "exit 1", "exit 137"] {
            let error = run(script);
            assert!(matches!(error, ProbeError::Unusable(_)), "{script}: {error:?}");
        }
        let missing = output_of(Path::new("/nowhere/refit"), &[], PATIENCE).unwrap_err();
        assert!(matches!(missing, ProbeError::Unusable(_)), "{missing:?}");
    }

    #[test]
    fn what_does_not_end_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let alive = folder.path().join("alive");
        rustix::fs::mknodat(rustix::fs::CWD, &alive, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        // The grandchild has the pipe open for writing for as long as it lives; so have we, until it is asked for.
        let ours = std::fs::File::options().read(true).write(true).open(&alive).unwrap();
        let script = format!("(exec 3<>{}; echo >&3; exec sleep 1000) & wait", alive.display());
        let (close, closed) = channel();
        std::thread::spawn(move || {
            std::fs::File::open(alive).unwrap().read_to_end(&mut Vec::new()).unwrap();
            close.send(()).unwrap();
        });
        let error = run(&script, Duration::from_secs(1)).unwrap_err();
        assert!(error.contains("did not end within 1 s"), "{error}");
        drop(ours);
        closed.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn what_is_left_behind_does_not_hold_up_an_answer() {
        let begin = Instant::now();
        assert_eq!(run("sleep 1000 & echo 1.2.3", Duration::from_secs(500)).unwrap(), b"1.2.3\n");
        assert!(begin.elapsed() < Duration::from_secs(100));
    }
}
