//! Which updater carries a command out: the one of the active version, or the previous one if that crashes, or ends an
//! update with an error, before anything was switched. Called before every command that changes something.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use refit_types::UpdateFailure;

use super::host::{Host, Installed};
use crate::exit::Failure;
use crate::invocation::Invocation;
use crate::stamp;

/// Set for an updater that must carry the command out itself, so that none delegates twice.
const DELEGATED: &str = "REFIT_UPDATE_HANDED";

/// Set by a unit that runs another updater unless this one has done its job, or says that no other is to try.
const LAUNCHED: &str = "REFIT_UPDATE_LAUNCHED";

/// Ends an updater that was started by another, or by a unit: the command failed, and no other updater is to try.
const SETTLED: u8 = 3;

/// The program, under whatever name its file has.
const NAME: &str = "refit-update";

/// How the process of another updater ended.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// It ran to its end, with that exit code.
    Finished(u8),
    /// It was stopped by a signal that asks a process to end.
    Stopped(i32),
    /// It could not run, or crashed.
    Crashed(String),
}

/// An updater that this one can delegate to.
struct OtherUpdater {
    path: PathBuf,
    what: String,
}

/// The updaters that a command can be delegated to, as seen from this one.
struct Updaters {
    active: OtherUpdater,
    previous: Option<OtherUpdater>,
    this: ThisUpdater,
}

/// What this updater is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThisUpdater {
    /// That of the active version.
    Active,
    /// Another, which can take over if it is older than the active one, or is the previous one.
    Other { can_take_over: bool },
}

/// What a failed update leaves as it was, if nothing was switched and the version was not tried.
#[derive(Debug, PartialEq, Eq)]
struct Evidence {
    pointer: Option<PathBuf>,
    is_switching: bool,
    version_failure: Option<UpdateFailure>,
}

impl Evidence {
    fn of(host: &Host) -> Self {
        Self {
            pointer: host.pointer(),
            is_switching: host.is_switching(),
            version_failure: host.status().version_failure().cloned(),
        }
    }
}

/// What becomes of a command that fails with an error: an update is handed on, other commands report it to the person who
/// gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnError {
    HandOn,
    Report,
}

/// Delegates the command and returns the exit code; nothing if this updater carries it out itself.
pub(super) fn delegate(
    host: &Host,
    invocation: &Invocation,
    on_error: OnError,
) -> Result<Option<u8>, Failure> {
    if is_delegated() {
        return Ok(None);
    }
    let Some(updaters) = updaters(host) else { return Ok(None) };
    let Updaters { active, previous, this } = &updaters;
    let (previous, this) = (previous.as_ref(), *this);
    let before = Evidence::of(host);
    let arguments = arguments(invocation);
    if this == ThisUpdater::Active && previous.is_none() {
        return Ok(None);
    }
    let by_active = match run(active, &arguments) {
        Ending::Finished(1) if on_error == OnError::HandOn && Evidence::of(host) == before => {
            tracing::warn!("{} failed before anything was switched; an older one tries", active.what);
            Err(Some(1))
        }
        Ending::Crashed(how) if !was_switched(host, &before) => {
            tracing::warn!("{} {how}; an older one does the job", active.what);
            Err(None)
        }
        ended => Ok(end(host, active, previous, ended)?),
    };
    let error = match by_active {
        Ok(code) => return Ok(Some(code)),
        Err(error) => error,
    };
    match (this, error, previous) {
        (ThisUpdater::Other { .. }, None, _) | (ThisUpdater::Other { can_take_over: true }, _, _) => Ok(None),
        (_, Some(code), None) => Ok(Some(code)),
        (_, _, Some(previous)) => match run(previous, &arguments) {
            Ending::Crashed(how) if !was_switched(host, &before) => Err(Failure::failed(format!(
                "{} {how}; no updater on this host can do the job; see the lines above",
                previous.what
            ))),
            ended => end(host, previous, Some(active), ended).map(Some),
        },
        (ThisUpdater::Active, None, None) => {
            Err(Failure::failed("no updater on this host can do the job; see the lines above"))
        }
    }
}

fn was_switched(host: &Host, before: &Evidence) -> bool {
    host.is_switching() || host.pointer() != before.pointer
}

/// The exit code of an updater that has ended the command. After a crash in the middle of a switch, another rolls back.
fn end(
    host: &Host,
    updater: &OtherUpdater,
    another: Option<&OtherUpdater>,
    ending: Ending,
) -> Result<u8, Failure> {
    let what = &updater.what;
    match ending {
        Ending::Finished(SETTLED) => Ok(1),
        Ending::Finished(code) => Ok(code),
        Ending::Stopped(signal) => Err(Failure::failed(format!("{what} was stopped by signal {signal}"))),
        Ending::Crashed(how) => {
            tracing::error!("{what} {how} in the middle of a switch");
            roll_back(host, another)?;
            Err(Failure::failed(format!(
                "{what} {how} in the middle of a switch; what it began was undone or is undone by the next command"
            )))
        }
    }
}

fn is_delegated() -> bool {
    std::env::var_os(DELEGATED).is_some()
}

/// A failure that another updater would not do better: it has to do with what is configured, or with another process.
pub(super) fn settled(error: impl std::fmt::Display) -> Failure {
    match is_delegated() {
        true => Failure::with_code(error, SETTLED),
        false => Failure::failed(error),
    }
}

/// A failure of a command for which other updaters have been asked already: a unit is not to ask them again.
pub(super) fn answered(failure: Failure) -> Failure {
    match std::env::var_os(LAUNCHED).is_some() && !is_delegated() {
        true => failure.or_code(1, SETTLED),
        false => failure,
    }
}

/// The updaters of this host, if it has one of its own.
fn updaters(host: &Host) -> Option<Updaters> {
    let (active, previous) = host.updaters()?;
    let this = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let is_this = |updater: &Installed| updater.1.canonicalize().ok() == this;
    let is_older = || stamp::version().is_ok_and(|own| own < active.0);
    let this = match is_this(&active) {
        true => ThisUpdater::Active,
        false => ThisUpdater::Other { can_take_over: previous.as_ref().is_some_and(is_this) || is_older() },
    };
    let other = |(version, path): Installed| OtherUpdater { path, what: format!("the updater of {version}") };
    Some(Updaters { previous: previous.map(other), active: other(active), this })
}

/// Has the updater of the version before roll a switch back that this one cannot; whether it did.
pub(super) fn recover_by_previous(host: &Host, arguments: &[&str]) -> bool {
    let Some(name) = host.profile.updater.as_ref().filter(|_| !is_delegated()) else { return false };
    let path = host.layout.active_back().join("bin").join(name);
    let previous = OtherUpdater { path, what: "the updater of the version before".into() };
    let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).into()).collect();
    if !previous.path.exists() {
        return false;
    }
    let recovered = run(&previous, &[host.same_agent(), &arguments].concat());
    tracing::info!("The rollback by {}: {recovered:?}", previous.what);
    !host.is_switching()
}

/// Rolls back by an updater that has not crashed: the previous version's, or else this one.
fn roll_back(host: &Host, other: Option<&OtherUpdater>) -> Result<(), Failure> {
    if let Some(other) = other {
        let recovered = run(other, &[host.same_agent(), &["recover".into(), "--online".into()]].concat());
        tracing::info!("The rollback by {}: {recovered:?}", other.what);
    }
    // An older version may not know the option, and then does nothing.
    if !host.is_switching() {
        return Ok(());
    }
    let Some(_lock) = host.try_lock()? else { return Ok(()) };
    host.roll_back_interrupted()
}

fn run(other: &OtherUpdater, arguments: &[std::ffi::OsString]) -> Ending {
    tracing::debug!(path = %other.path.display(), "delegating");
    let mut command = Command::new(&other.path);
    ending_of(command.arg0(NAME).args(arguments).env(DELEGATED, "1").env_remove(LAUNCHED).status())
}

/// The arguments after the program's name, or after `refit update`.
fn arguments(invocation: &Invocation) -> Vec<std::ffi::OsString> {
    std::env::args_os().skip(if invocation.is(NAME) { 1 } else { 2 }).collect()
}

fn ending_of(status: io::Result<ExitStatus>) -> Ending {
    const ASKING_SIGNALS: [i32; 3] = [1, 2, 15];
    match status {
        Err(error) => Ending::Crashed(format!("cannot be run ({error})")),
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code @ 0..=3), _) => Ending::Finished(code as u8),
            (_, Some(signal)) if ASKING_SIGNALS.contains(&signal) => Ending::Stopped(signal),
            _ => Ending::Crashed(format!("crashed ({status})")),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Mutex};

    use refit_update::{Journal, RealDisk, Recovery, Step};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn only_crashes_are_crashes() {
        let ended = |raw| ending_of(Ok(ExitStatus::from_raw(raw)));
        for code in [0, 1, 2, SETTLED] {
            assert_eq!(ended(i32::from(code) << 8), Ending::Finished(code));
        }
        assert_eq!(ended(15), Ending::Stopped(15));
        for raw in [11, 6, 9, 101 << 8, 127 << 8] {
            assert!(matches!(ended(raw), Ending::Crashed(_)), "{raw}");
        }
        assert!(matches!(ending_of(Err(io::ErrorKind::NotFound.into())), Ending::Crashed(_)));
    }

    /// A host on which a switch from 1.0.0 to 2.0.0 was interrupted, with a supervisor that records its requests.
    struct InterruptedHost {
        root: TempDir,
        host: Host,
        requests: Arc<Mutex<Vec<String>>>,
    }

    impl InterruptedHost {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let data = root.path().join("var/lib/refit");
            std::fs::create_dir_all(data.join("versions/1.0.0")).unwrap();
            symlink("versions/2.0.0", data.join("active")).unwrap();
            let requests = Arc::<Mutex<Vec<String>>>::default();
            record_requests(UnixListener::bind(data.join("supervisor.sock")).unwrap(), requests.clone());
            let host = Host::new(root.path(), None, None).unwrap();
            let (from, to) = (Some("1.0.0".parse().unwrap()), "2.0.0".parse().unwrap());
            let journal = Journal { from, to, step: Step::Switching, backed_up: false, runs: true };
            journal.store(&RealDisk, &host.layout).unwrap();
            Self { root, host, requests }
        }

        /// An updater that runs only this script. A child process writes it, so that no process started meanwhile has it open.
        fn updater(&self, deed: &str) -> OtherUpdater {
            let path = self.root.path().join("updater");
            let text =
                format!("#!/bin/sh\necho \"$@\" >>{}\n{deed}\n", self.root.path().join("asked").display());
            let mut write = Command::new("sh");
            write.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", &text]).arg(&path);
            assert!(write.status().unwrap().success());
            OtherUpdater { path, what: "the updater of 0.9.0".into() }
        }

        fn asked(&self) -> String {
            std::fs::read_to_string(self.root.path().join("asked")).unwrap()
        }
    }

    fn record_requests(listener: UnixListener, requests: Arc<Mutex<Vec<String>>>) {
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = String::new();
                let _ = stream.read_to_string(&mut request);
                if request.is_empty() {
                    continue;
                }
                requests.lock().unwrap().push(request.trim().into());
                let _ = stream.write_all(b"\"done\"");
            }
        });
    }

    #[test]
    fn the_other_updater_rolls_back_and_starts_the_agent() {
        let interrupted = InterruptedHost::new();
        let journal = interrupted.host.layout.journal();
        let other = interrupted.updater(&format!("rm {}", journal.display()));
        roll_back(&interrupted.host, Some(&other)).unwrap();
        let asked = format!("--root {} recover --online\n", interrupted.root.path().display());
        assert_eq!(interrupted.asked(), asked);
        assert_eq!(*interrupted.requests.lock().unwrap(), [""; 0], "the other updater has started it");
    }

    #[test]
    fn this_updater_rolls_back_where_an_older_one_cannot() {
        for deed in ["echo \"unexpected argument '--online'\" >&2; exit 2", "exit 1", "kill -SEGV $$"] {
            let interrupted = InterruptedHost::new();
            let other = interrupted.updater(deed);
            roll_back(&interrupted.host, Some(&other)).unwrap();
            assert_eq!(interrupted.asked().lines().count(), 1, "{deed}");
            assert!(!interrupted.host.is_switching(), "{deed}");
            assert_eq!(interrupted.host.pointer(), Some("versions/1.0.0".into()), "{deed}");
            assert_eq!(*interrupted.requests.lock().unwrap(), ["\"stop\"", "\"start\""], "{deed}");
        }
    }

    #[test]
    fn the_version_before_recovers_what_this_updater_cannot() {
        let interrupted = InterruptedHost::new();
        let (host, journal) = (&interrupted.host, interrupted.host.layout.journal());
        std::fs::write(&journal, "{").unwrap();
        let error = super::super::recover(host, Recovery::Online).unwrap_err().to_string();
        assert!(error.starts_with("recover: ") && host.is_switching(), "{error}");

        let other = interrupted.updater(&format!("rm {}", journal.display()));
        let bin = interrupted.root.path().join("var/lib/refit/versions/1.0.0/bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(other.path, bin.join(NAME)).unwrap();
        symlink("versions/1.0.0", host.layout.active_back()).unwrap();
        super::super::recover(host, Recovery::Online).unwrap();
        let asked = format!("--root {} recover --online\n", interrupted.root.path().display());
        assert_eq!(interrupted.asked(), asked);
        assert!(!host.is_switching());
    }

    #[test]
    fn no_rollback_happens_while_another_updater_holds_the_lock() {
        let interrupted = InterruptedHost::new();
        let _lock = interrupted.host.try_lock().unwrap().unwrap();
        roll_back(&interrupted.host, None).unwrap();
        assert!(interrupted.host.is_switching());
        assert_eq!(*interrupted.requests.lock().unwrap(), [""; 0]);
    }
}
