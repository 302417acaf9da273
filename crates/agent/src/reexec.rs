//! Re-execution under the same process id, with the lock handed on.

use std::convert::Infallible;
use std::env;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::execve;
use rustix::stdio::dup2_stdin;

use crate::{ExecPath, PidFile};

/// Why the process could not be re-executed; it keeps running.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot re-execute {path}: {source}; the agent keeps running its current version: \
     put a binary there and reload again", path = .path.display()
)]
pub struct ReexecError {
    path: PathBuf,
    source: io::Error,
}

/// Re-executes the binary at the path that this process was started by, with the same process id, arguments
/// and environment. Returns only when that fails.
///
/// All other files and sockets close by themselves. The lock passes on as the next image's standard
/// input, and a further SIGHUP waits until the next image listens ([`crate::Signals::listen`]) instead
/// of ending it. A failure leaves everything as it was, which the standard library's `exec` does not: it
/// would let a broken pipe end the process from then on.
pub fn reexec(started: &ExecPath, lock: &PidFile) -> Result<Infallible, ReexecError> {
    try_reexec(started, lock).map_err(|source| ReexecError { path: started.path().into(), source })
}

fn try_reexec(started: &ExecPath, lock: &PidFile) -> io::Result<Infallible> {
    let path = text(started.path().as_os_str())?;
    let arguments = started.arguments().iter().map(|argument| text(argument));
    let arguments: Vec<_> = std::iter::once(Ok(path.clone())).chain(arguments).collect::<Result<_, _>>()?;
    let environment = env::vars_os().map(|(name, value)| variable(name, value));
    let environment: Vec<_> = environment.collect::<Result<_, _>>()?;

    let mut hangup = SigSet::empty();
    hangup.add(Signal::SIGHUP);
    hangup.thread_block()?;
    let failure = match dup2_stdin(lock.handle()) {
        Err(error) => io::Error::from(error),
        Ok(()) => match execve(&path, &arguments, &environment) {
            Ok(never) => match never {},
            Err(error) => io::Error::from(error),
        },
    };
    hangup.thread_unblock()?;
    dup2_stdin(File::open("/dev/null")?)?;
    Err(failure)
}

fn text(text: &OsStr) -> Result<CString, NulError> {
    CString::new(text.as_bytes())
}

fn variable(name: OsString, value: OsString) -> Result<CString, NulError> {
    let mut assignment = name.into_vec();
    assignment.push(b'=');
    assignment.extend(value.into_vec());
    CString::new(assignment)
}
