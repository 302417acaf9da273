//! The `Service` seam by `systemctl`.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::journal_lines;
use crate::host::{HostError, Service, ServiceState};
use crate::{RunEnd, RunMark};

/// `si_code` of a child that exited by itself; all others of `ExecMainCode` were ended by a signal.
const CLD_EXITED: &str = "1";

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

    fn properties(&self, names: &str) -> Result<Properties, HostError> {
        match self.systemctl(&["show", &format!("--property={names}"), &self.unit])? {
            (true, said, _) => Ok(Properties(said)),
            (false, _, error) => {
                Err(HostError(format!("systemd does not report the state of {}: {error}", self.unit)))
            }
        }
    }

    fn run_properties(&self) -> Option<Properties> {
        let names = "ActiveState,Job,NRestarts,ExecMainCode,ExecMainStatus,ExecMainExitTimestampMonotonic";
        self.properties(names).inspect_err(|error| tracing::debug!("{error}")).ok()
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

/// What `systemctl show` printed.
struct Properties(String);

impl Properties {
    fn of(&self, name: &str) -> &str {
        let mut pairs = self.0.lines().filter_map(|line| line.split_once('='));
        pairs.find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn number(&self, name: &str) -> u64 {
        self.of(name).parse().unwrap_or_default()
    }

    fn has_job(&self) -> bool {
        !matches!(self.of("Job"), "" | "0")
    }

    /// How the main process has ended since the mark. One that somebody else stops or restarts is not judged: a process
    /// that is being stopped, or a service that waits for its start.
    fn end_since(&self, mark: &RunMark) -> Option<RunEnd> {
        let is_stopped_by_others = match self.of("ActiveState") {
            "deactivating" => true,
            "inactive" | "failed" => self.has_job(),
            _ => false,
        };
        let (exited, restarts) = (self.number("ExecMainExitTimestampMonotonic"), self.number("NRestarts"));
        let status = self.of("ExecMainStatus").parse().unwrap_or_default();
        match () {
            () if is_stopped_by_others => None,
            () if exited != 0 && exited != mark.ended => Some(match self.of("ExecMainCode") {
                CLD_EXITED => RunEnd::Exit(status),
                _ => RunEnd::Signal(status),
            }),
            // systemd forgets a unit that ended well and that nothing refers to.
            () if self.of("ActiveState") == "inactive" && exited == 0 => Some(RunEnd::Exit(0)),
            // `reset-failed` sets the counter to 0.
            () if restarts != 0 && restarts != mark.restarts => Some(RunEnd::Restarted),
            () => None,
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
        let said = self.properties("ActiveState,Job")?;
        Ok(match said.of("ActiveState") {
            "active" | "reloading" => ServiceState::Running,
            // Before it is ready an agent may not handle signals yet, so it is started again and not reloaded.
            "activating" => ServiceState::Failing,
            "inactive" | "failed" if said.has_job() => ServiceState::Queued,
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

    fn is_agent_start(&self, start: Option<&str>) -> bool {
        let current = self.properties("InvocationID");
        start.is_none_or(|start| current.is_ok_and(|said| said.of("InvocationID") == start))
    }

    fn mark_run(&self) -> Option<RunMark> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).ok()?;
        let output = u64::try_from(now.as_micros()).ok()?;
        let said = self.run_properties()?;
        let ended = said.number("ExecMainExitTimestampMonotonic");
        Some(RunMark { ended, restarts: said.number("NRestarts"), output })
    }

    fn end_since(&self, mark: &RunMark) -> Option<RunEnd> {
        let said = self.run_properties()?;
        let end = said.end_since(mark)?;
        let is_down = said.of("ActiveState") == "inactive";
        Some(match is_down && journal_lines::was_stopped(&self.unit, mark.output) {
            true => RunEnd::Stopped,
            false => end,
        })
    }

    fn lines_since(&self, mark: &RunMark) -> Vec<String> {
        journal_lines::last_lines(&self.unit, mark.output)
    }

    fn request_update(&self) -> Result<(), HostError> {
        match &self.updater {
            Some(updater) => self.run("the updater", &["start", "--no-block", updater]),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_ended_by_itself_is_told_from_one_that_somebody_stops() {
        let mark = RunMark { ended: 100, restarts: 2, output: 0 };
        let end = |state: &str, job: &str, restarts: u32, code: u32, status: u32, exited: u32| {
            let text = format!(
                "NRestarts={restarts}\nExecMainCode={code}\nExecMainStatus={status}\n\
                 ExecMainExitTimestampMonotonic={exited}\nActiveState={state}\nJob={job}"
            );
            Properties(text).end_since(&mark)
        };
        assert_eq!(end("active", "", 2, 0, 0, 0), None, "it runs");
        assert_eq!(end("activating", "7", 0, 0, 0, 0), None, "it was started again on request");
        assert_eq!(end("failed", "", 2, 1, 1, 100), None, "this one ended before");
        assert_eq!(end("activating", "", 2, 1, 3, 200), Some(RunEnd::Exit(3)));
        assert_eq!(
            end("activating", "7", 2, 3, 11, 200),
            Some(RunEnd::Signal(11)),
            "it waits for its restart"
        );
        assert_eq!(end("inactive", "", 2, 1, 0, 200), Some(RunEnd::Exit(0)));
        assert_eq!(end("active", "", 3, 0, 0, 0), Some(RunEnd::Restarted));
        assert_eq!(end("inactive", "", 0, 0, 0, 0), Some(RunEnd::Exit(0)), "systemd has forgotten it");
        assert_eq!(end("inactive", "7", 0, 0, 0, 0), None, "its start waits");
        assert_eq!(end("deactivating", "7", 2, 1, 0, 200), None, "somebody stops it");
        assert_eq!(end("inactive", "7", 2, 1, 0, 200), None, "somebody restarts it");
    }
}
