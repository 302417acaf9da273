//! Which updater carries a command out: the one of the active version, or the previous one if that crashes before it has
//! switched anything. Called before every command that changes something.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use super::host::Host;
use crate::exit::Failure;
use crate::invocation::Invocation;

/// Set for an updater that must carry the command out itself, so that none delegates twice.
const DELEGATED: &str = "REFIT_UPDATE_HANDED";

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

/// Delegates the command and returns the exit code; nothing if this updater carries it out itself.
pub(super) fn delegate(host: &Host, invocation: &Invocation) -> Result<Option<u8>, Failure> {
    if std::env::var_os(DELEGATED).is_some() {
        return Ok(None);
    }
    let (others, is_active) = others(host);
    let before = host.pointer();
    for other in &others {
        match run(other, &arguments(invocation)) {
            Ending::Finished(code) => return Ok(Some(code)),
            Ending::Stopped(signal) => {
                return Err(Failure::failed(format!("{} was stopped by signal {signal}", other.what)));
            }
            Ending::Crashed(how) if host.is_switching() || host.pointer() != before => {
                tracing::error!("{} {how} in the middle of a switch", other.what);
                roll_back(host, others.iter().find(|one| one.path != other.path))?;
                return Err(Failure::failed(format!(
                    "{} {how} in the middle of a switch; what it began was undone or is undone by the next command",
                    other.what
                )));
            }
            Ending::Crashed(how) => tracing::warn!("{} {how}; an older one does the job", other.what),
        }
    }
    match is_active && !others.is_empty() {
        true => Err(Failure::failed("no updater on this host can do the job; see the lines above")),
        false => Ok(None),
    }
}

/// The updater of the active version first. If that is this one, it runs in another process, so that this process can
/// delegate to the previous version when it crashes.
fn others(host: &Host) -> (Vec<OtherUpdater>, bool) {
    let Some((active, previous)) = host.updaters() else { return (Vec::new(), false) };
    let this = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let is_active = active.1.canonicalize().ok() == this;
    let other = |(version, path): (refit_types::Version, PathBuf)| {
        let what = format!("the updater of {version}");
        OtherUpdater { path, what }
    };
    match (is_active, previous) {
        (true, None) => (Vec::new(), true),
        (true, Some(previous)) => (vec![other(active), other(previous)], true),
        (false, _) => (vec![other(active)], false),
    }
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
    ending_of(command.arg0(NAME).args(arguments).env(DELEGATED, "1").status())
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
            (Some(code @ 0..=2), _) => Ending::Finished(code as u8),
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

    use refit_update::{Journal, RealDisk, Step};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn only_crashes_are_crashes() {
        let ended = |raw| ending_of(Ok(ExitStatus::from_raw(raw)));
        for code in [0, 1, 2] {
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
    fn no_rollback_happens_while_another_updater_holds_the_lock() {
        let interrupted = InterruptedHost::new();
        let _lock = interrupted.host.try_lock().unwrap().unwrap();
        roll_back(&interrupted.host, None).unwrap();
        assert!(interrupted.host.is_switching());
        assert_eq!(*interrupted.requests.lock().unwrap(), [""; 0]);
    }
}
