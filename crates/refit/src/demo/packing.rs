//! Builds the archives of the demo from this binary, on background threads, and a mirror with a broken build.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use refit_types::Version;

use crate::exit::Failure;
use crate::{archive, stamp};

/// The part of the archives' directory with the build that does not run.
pub(super) const BROKEN_MIRROR: &str = "broken";

/// Archives that are being built on background threads: it takes seconds, and the user may interrupt.
#[derive(Debug, Default)]
pub(super) struct Packing {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Packing {
    /// Begins to pack this very program as that version.
    pub(super) fn begin(&mut self, directory: &Path, version: &Version) {
        let (stop, directory, version) = (self.stop.clone(), directory.to_owned(), version.clone());
        self.threads.push(thread::spawn(move || {
            let mut agent = fs::read("/proc/self/exe")?;
            stamp::write(&mut agent, &version).map_err(io::Error::other)?;
            archive::pack(&directory, &version, &agent, || !stop.load(Ordering::Relaxed)).map(drop)
        }));
    }

    pub(super) fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// The result; call it when it is done.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        for thread in self.threads.drain(..) {
            let packed = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread died")));
            packed.map_err(|error| Failure::failed(format!("an archive cannot be made: {error}")))?;
        }
        Ok(())
    }

    /// Cancels, and waits until the threads have stopped writing.
    pub(super) fn give_up(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.end();
    }
}

/// Another mirror, with the same old version and a build of the new one that says what it is, as it must, and whose
/// agent does not start.
pub(super) fn break_mirror(artifacts: &Path, old: &Version, new: &Version) -> Result<PathBuf, Failure> {
    let mirror = artifacts.join(BROKEN_MIRROR);
    let make = || {
        fs::create_dir(&mirror)?;
        let (good, same) = (artifacts.join(archive::name(old)), mirror.join(archive::name(old)));
        fs::hard_link(&good, &same)?;
        fs::hard_link(archive::checksum(&good), archive::checksum(&same))?;
        let edition = crate::EDITION;
        let script = format!(
            "#!/bin/sh\n[ \"$1\" != version ] || exec echo 'refit v{new} ({edition})'\n\
             echo 'this build of {new} is broken: its agent does not start' >&2\nexit 3\n"
        );
        archive::pack(&mirror, new, script.as_bytes(), || true)
    };
    make().map_err(|error| Failure::failed(format!("{}: {error}", mirror.display())))?;
    Ok(mirror)
}
