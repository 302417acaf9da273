//! The `Service` seam where there is no systemd: by requests to the supervisor if one runs, and by nothing in an image.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::{NoService, Supervised};
use crate::host::{HostError, Manager, Service, ServiceState};
use crate::supervisor::supervisor_lock;
use crate::{Layout, Lock, LockError, RunEnd, RunMark};

/// How long a supervisor may take from its lock to its socket.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// The supervisor of a host, or none. Every request looks for it again: it may start and end at any moment.
#[derive(Debug)]
pub struct DetectedService {
    supervised: Supervised,
    lock: PathBuf,
}

impl DetectedService {
    /// What runs the agent of a layout.
    pub fn new(layout: &Layout) -> Self {
        Self { supervised: Supervised::new(layout), lock: supervisor_lock(layout) }
    }

    fn current(&self) -> &dyn Service {
        if self.supervised.is_listening() { &self.supervised } else { &NoService }
    }
}

impl Service for DetectedService {
    /// A supervisor holds its lock for as long as it lives, and takes it before it starts an agent: whoever else holds it
    /// knows that there is none.
    fn manager(&self) -> Result<Manager, HostError> {
        let end = Instant::now() + LISTENS_WITHIN;
        loop {
            match Lock::take_if_possible(&self.lock) {
                Ok(lock) => return Ok(Manager::Absent(Box::new(lock))),
                Err(LockError::Held { .. }) if self.supervised.is_listening() => return Ok(Manager::Present),
                Err(LockError::Held { .. }) if Instant::now() < end => thread::sleep(POLL_EVERY),
                Err(LockError::Held { path, .. }) => {
                    let path = path.display();
                    return Err(HostError(format!(
                        "a supervisor holds {path} and does not listen; see its log, or stop it"
                    )));
                }
                Err(error) => return Err(HostError(error.to_string())),
            }
        }
    }

    fn is_enabled(&self) -> Result<bool, HostError> {
        self.current().is_enabled()
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), HostError> {
        self.current().set_enabled(enabled)
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        self.current().state()
    }

    fn reload(&self) -> Result<(), HostError> {
        self.current().reload()
    }

    fn stop(&self) -> Result<(), HostError> {
        self.current().stop()
    }

    fn start(&self) -> Result<(), HostError> {
        self.current().start()
    }

    fn refresh(&self) -> Result<(), HostError> {
        self.current().refresh()
    }

    fn set_updates(&self, on: bool) -> Result<(), HostError> {
        self.current().set_updates(on)
    }

    fn mark_run(&self) -> Option<RunMark> {
        self.current().mark_run()
    }

    fn end_since(&self, mark: &RunMark) -> Option<RunEnd> {
        self.current().end_since(mark)
    }

    fn lines_since(&self, mark: &RunMark) -> Vec<String> {
        self.current().lines_since(mark)
    }
}
