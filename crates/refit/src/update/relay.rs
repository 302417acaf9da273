//! Which updater does the job: the active version's, and an older one where that crashes before it has switched
//! anything.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use super::host::Host;
use crate::exit::Failure;
use crate::invocation::Invocation;

/// Set for an updater that is to do the job itself, so that none hands it on twice.
const HANDED: &str = "REFIT_UPDATE_HANDED";

/// The program, under whatever name its file has.
const NAME: &str = "refit-update";

/// How another updater ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// As it meant to, with that exit code.
    Meant(u8),
    /// Somebody asked it to stop.
    Asked(i32),
    /// It could not run, or crashed.
    Crashed(String),
}

/// An updater that this one can hand the job to.
struct Other {
    path: PathBuf,
    what: String,
}

/// Has the job done by the updater that should do it; nothing if that is this one.
pub(super) fn hand_on(host: &Host, invocation: &Invocation) -> Result<Option<u8>, Failure> {
    if std::env::var_os(HANDED).is_some() {
        return Ok(None);
    }
    let (others, is_active) = others(host);
    let before = host.pointer();
    for other in &others {
        match run(other, &arguments(invocation)) {
            Ended::Meant(code) => return Ok(Some(code)),
            Ended::Asked(signal) => {
                return Err(Failure::failed(format!("{} was stopped by signal {signal}", other.what)));
            }
            Ended::Crashed(how) if host.is_switching() || host.pointer() != before => {
                tracing::error!("{} {how} in the middle of a switch", other.what);
                go_back(host, others.iter().find(|one| one.path != other.path))?;
                return Err(Failure::failed(format!(
                    "{} {how} in the middle of a switch; what it began was undone or is undone by the next command",
                    other.what
                )));
            }
            Ended::Crashed(how) => tracing::warn!("{} {how}; an older one does the job", other.what),
        }
    }
    match is_active && !others.is_empty() {
        true => Err(Failure::failed("no updater on this host can do the job; see the lines above")),
        false => Ok(None),
    }
}

/// The one of the active version first. Where that is this one, it runs apart from this process, so that somebody is
/// there to have the version before do the job.
fn others(host: &Host) -> (Vec<Other>, bool) {
    let Some((active, previous)) = host.updaters() else { return (Vec::new(), false) };
    let this = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let is_active = active.1.canonicalize().ok() == this;
    let other = |(version, path): (refit_types::Version, PathBuf)| {
        let what = format!("the updater of {version}");
        Other { path, what }
    };
    match (is_active, previous) {
        (true, None) => (Vec::new(), true),
        (true, Some(previous)) => (vec![other(active), other(previous)], true),
        (false, _) => (vec![other(active)], false),
    }
}

/// By one that has not crashed: the version before, or else this one. `recover` is for before a start, and starts nothing.
fn go_back(host: &Host, other: Option<&Other>) -> Result<(), Failure> {
    let Some(other) = other else {
        let Some(_lock) = host.lock()? else { return Ok(()) };
        return host.settle();
    };
    let is_to_run = host.journal().is_some_and(|journal| journal.runs);
    let recovered = run(other, &[host.same_agent(), &["recover".into()]].concat());
    tracing::info!("The way back: {recovered:?}");
    if is_to_run && !host.is_switching() { host.start_agent() } else { Ok(()) }
}

fn run(other: &Other, arguments: &[std::ffi::OsString]) -> Ended {
    tracing::debug!(path = %other.path.display(), "handing on");
    let mut command = Command::new(&other.path);
    judge(command.arg0(NAME).args(arguments).env(HANDED, "1").status())
}

/// The arguments behind the program's name, or behind `refit update`.
fn arguments(invocation: &Invocation) -> Vec<std::ffi::OsString> {
    std::env::args_os().skip(if invocation.is(NAME) { 1 } else { 2 }).collect()
}

fn judge(status: io::Result<ExitStatus>) -> Ended {
    const ASKED: [i32; 3] = [1, 2, 15];
    match status {
        Err(error) => Ended::Crashed(format!("cannot be run ({error})")),
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code @ 0..=2), _) => Ended::Meant(code as u8),
            (_, Some(signal)) if ASKED.contains(&signal) => Ended::Asked(signal),
            _ => Ended::Crashed(format!("crashed ({status})")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crashes_are_crashes() {
        let ended = |raw| judge(Ok(ExitStatus::from_raw(raw)));
        for code in [0, 1, 2] {
            assert_eq!(ended(i32::from(code) << 8), Ended::Meant(code));
        }
        assert_eq!(ended(15), Ended::Asked(15));
        for raw in [11, 6, 9, 101 << 8, 127 << 8] {
            assert!(matches!(ended(raw), Ended::Crashed(_)), "{raw}");
        }
        assert!(matches!(judge(Err(io::ErrorKind::NotFound.into())), Ended::Crashed(_)));
    }
}
