//! The `Service` seam by `systemctl`.

use std::process::{Command, Stdio};

use crate::host::{HostError, Service, ServiceState};

/// The agent as a unit of systemd, with the units that trigger its updater.
#[derive(Debug, Clone)]
pub struct Systemd {
    unit: String,
    triggers: Vec<String>,
    updater: Option<String>,
}

impl Systemd {
    /// The unit of that name, the units that trigger its updater, and the unit that is the updater.
    pub fn new(unit: &str, triggers: Vec<String>, updater: Option<String>) -> Self {
        Self { unit: unit.to_owned(), triggers, updater }
    }

    /// Runs `systemctl`; returns whether it succeeded, its output and its error output.
    fn systemctl(&self, arguments: &[&str]) -> Result<(bool, String, String), HostError> {
        let output = Command::new("systemctl")
            .arg("--no-ask-password")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| HostError(format!("systemctl cannot be run: {error}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Result<(), HostError> {
        match self.systemctl(arguments)? {
            (true, ..) => Ok(()),
            (false, _, said) => Err(HostError(format!(
                "{what} of {} failed: {said}; see `journalctl -u {}`",
                self.unit, self.unit
            ))),
        }
    }
}

impl Service for Systemd {
    fn is_enabled(&self) -> Result<bool, HostError> {
        Ok(self.systemctl(&["is-enabled", "--quiet", &self.unit])?.0)
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), HostError> {
        let verb = if enabled { "enable" } else { "disable" };
        self.run(verb, &["--quiet", verb, &self.unit])
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        let (good, said, error) =
            self.systemctl(&["show", "--property=ActiveState,MainPID,Job", &self.unit])?;
        if !good {
            return Err(HostError(format!("systemd does not report the state of {}: {error}", self.unit)));
        }
        let property = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        Ok(match property("ActiveState=") {
            "active" | "reloading" => ServiceState::Running,
            "activating" if property("MainPID=") != "0" => ServiceState::Running,
            "activating" => ServiceState::Failing,
            "inactive" | "failed" if !matches!(property("Job="), "" | "0") => ServiceState::Queued,
            "failed" if self.is_enabled()? => ServiceState::Failing,
            _ => ServiceState::Stopped,
        })
    }

    fn reload(&self) -> Result<(), HostError> {
        self.run("the reload", &["kill", "--kill-who=main", "--signal=HUP", &self.unit])
    }

    fn stop(&self) -> Result<(), HostError> {
        self.run("the stop", &["stop", &self.unit])
    }

    fn start(&self) -> Result<(), HostError> {
        // systemd refuses to start a unit that has reached its start limit.
        let _ = self.systemctl(&["reset-failed", &self.unit])?;
        self.run("the start", &["start", "--no-block", &self.unit])
    }

    fn refresh(&self) -> Result<(), HostError> {
        self.run("daemon-reload", &["daemon-reload"])
    }

    fn set_updates(&self, on: bool) -> Result<(), HostError> {
        if self.triggers.is_empty() {
            return Ok(());
        }
        let verb = if on { "start" } else { "stop" };
        let triggers = self.triggers.iter().map(String::as_str);
        self.run("the timer", &[verb].into_iter().chain(triggers).collect::<Vec<_>>())
    }
    fn request_update(&self) -> Result<(), HostError> {
        match &self.updater {
            Some(updater) => self.run("the updater", &["start", "--no-block", updater]),
            None => Ok(()),
        }
    }
}
