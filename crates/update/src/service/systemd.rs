use std::process::{Command, Stdio};

use crate::host::{HostError, Service};

/// The agent as a unit of systemd.
#[derive(Debug, Clone)]
pub struct Systemd {
    unit: String,
}

impl Systemd {
    /// The unit of that name.
    pub fn new(unit: &str) -> Self {
        Self { unit: unit.to_owned() }
    }

    /// Runs `systemctl`; what it exits with, and what it says.
    fn systemctl(&self, arguments: &[&str]) -> Result<(bool, String), HostError> {
        let output = Command::new("systemctl")
            .arg("--no-ask-password")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| HostError(format!("systemctl cannot be run: {error}")))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((output.status.success(), said))
    }

    fn must(&self, verb: &str, arguments: &[&str]) -> Result<(), HostError> {
        match self.systemctl(arguments)? {
            (true, _) => Ok(()),
            (false, said) => Err(HostError(format!(
                "{verb} of {} failed: {said}; see `journalctl -u {}`",
                self.unit, self.unit
            ))),
        }
    }
}

impl Service for Systemd {
    fn is_enabled(&self) -> Result<bool, HostError> {
        Ok(self.systemctl(&["is-enabled", "--quiet", &self.unit])?.0)
    }

    fn is_active(&self) -> Result<bool, HostError> {
        Ok(self.systemctl(&["is-active", "--quiet", &self.unit])?.0)
    }

    fn reload(&self) -> Result<(), HostError> {
        self.must("the reload", &["kill", "--kill-who=main", "--signal=HUP", &self.unit])
    }

    fn stop(&self) -> Result<(), HostError> {
        self.must("the stop", &["stop", &self.unit])
    }

    fn start(&self) -> Result<(), HostError> {
        // A unit that failed too often is not started before that is forgotten.
        let _ = self.systemctl(&["reset-failed", &self.unit])?;
        self.must("the start", &["start", &self.unit])
    }

    fn refresh(&self) -> Result<(), HostError> {
        self.must("daemon-reload", &["daemon-reload"])
    }
}
