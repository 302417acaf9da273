//! `versions/V/unproved`: V was switched to while no agent ran, so nobody knows whether it works. Written by `switch`
//! before the journal is removed, and removed when an agent of V is healthy. `recover` counts the starts until then, and
//! an update that finds the agent unhealthy, or one start too many, undoes the switch.

use std::io;

use refit_types::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::disk::{Disk, point_durably, remove_durably, write_durably};
use crate::environment::Environment;
use crate::failure::{FailedStep, StepFailed};
use crate::host::ServiceState;
use crate::journal::{Journal, Step};
use crate::layout::Layout;
use crate::versions::{active_version, is_complete};
use crate::{failure_log, status_file};

/// How often an agent may start before it has proved that it works.
const MOST_STARTS: u32 = 3;

/// The record of a version that has not proved that it works. Fields that this release does not know survive a rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproved {
    /// The version before, which comes back if this one does not work; nothing after a first installation.
    pub from: Option<Version>,
    /// Whether the database of that version was backed up.
    pub backed_up: bool,
    /// The attempt of the switch, as the control plane counts it.
    #[serde(default)]
    pub attempt: u64,
    /// How often its agent has been started.
    #[serde(default)]
    pub starts: u32,
    /// The service manager's name of the last start: several commands may run before one start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_start: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A version that did not prove that it works, and was rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disproved {
    /// The version.
    pub version: Version,
    /// The version that is active again.
    pub from: Version,
    /// The attempt of its switch.
    pub attempt: u64,
    /// Why it counts as broken.
    pub failure: StepFailed,
}

impl Unproved {
    fn load(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<Option<Self>> {
        match disk.read(&layout.unproved(version)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn store(&self, disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_durably(disk, &layout.unproved(version), &bytes, 0o644)
    }

    /// Removes the record: the version works, or is no longer active.
    pub(crate) fn clear(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<()> {
        remove_durably(disk, &layout.unproved(version))
    }

    /// The active version and its record, if it has not proved that it works.
    pub(crate) fn of_active(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<(Version, Self)>> {
        let Some(active) = active_version(disk, layout)? else { return Ok(None) };
        Ok(Self::load(disk, layout, &active)?.map(|record| (active, record)))
    }

    /// The version that comes back if the active one does not work.
    pub(crate) fn way_back(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<Version>> {
        Ok(Self::of_active(disk, layout)?.and_then(|(_, record)| record.from))
    }
}

impl Environment<'_> {
    /// Records that the version of a switch has not proved that it works. If the version that is left had not either, the
    /// way back leads to the one before that, or nowhere if no agent has ever run.
    pub(crate) fn record_unproved(&self, journal: &Journal, attempt: u64) -> io::Result<()> {
        let (mut from, mut backed_up) = (journal.from.clone(), journal.backed_up);
        let left = match &journal.from {
            Some(left) => Unproved::load(self.disk, self.layout, left)?,
            None => None,
        };
        if let Some(left) = left {
            (from, backed_up) = match left.from {
                Some(proved) if is_complete(self.disk, self.layout, &proved)? => {
                    (Some(proved), left.backed_up)
                }
                // The agent of a first installation has run if it has a database.
                _ => (from.filter(|_| backed_up), backed_up),
            };
        }
        if from.as_ref() == Some(&journal.to) {
            // Back to the version that works, before the other one was ever started.
            return Unproved::clear(self.disk, self.layout, &journal.to);
        }
        remove_durably(self.disk, &self.layout.proved(&journal.to))?;
        let rest = Map::new();
        let record = Unproved { from, backed_up, attempt, starts: 0, last_start: None, rest };
        record.store(self.disk, self.layout, &journal.to)
    }

    /// Has `active.back` lead to the version before for as long as the active one has not proved itself, so that the units
    /// can run an updater that works; and removes it otherwise.
    pub(crate) fn point_way_back(&self) -> io::Result<()> {
        let back = self.layout.active_back();
        match Unproved::way_back(self.disk, self.layout)? {
            Some(from) if self.disk.read_link(&back).ok() == Some(self.layout.active_target(&from)) => Ok(()),
            Some(from) => point_durably(self.disk, &back, &self.layout.active_target(&from)),
            None => remove_durably(self.disk, &back),
        }
    }

    /// Proves the active version, if that is still to be done and its agent runs, or undoes the switch to it.
    pub(crate) fn prove_active(
        &self,
        is_reachable: &dyn Fn() -> bool,
    ) -> Result<Option<Disproved>, StepFailed> {
        let found = Unproved::of_active(self.disk, self.layout).map_err(FailedStep::Recover.failed())?;
        let Some((version, record)) = found else { return Ok(None) };
        let is_there = match &record.from {
            Some(from) => is_complete(self.disk, self.layout, from).map_err(FailedStep::Recover.failed())?,
            None => false,
        };
        let Some(from) = record.from.as_ref().filter(|_| is_there) else {
            // There is nothing to go back to, so it can take its time.
            if self.record_proof(&version).map_err(FailedStep::Settle.failed())? {
                Unproved::clear(self.disk, self.layout, &version).map_err(FailedStep::Settle.failed())?;
            }
            return Ok(None);
        };
        let state = self.service.state().map_err(FailedStep::Service.failed())?;
        if matches!(state, ServiceState::Stopped | ServiceState::Queued) {
            tracing::info!("{version} is not proved: it has not been started since it was installed");
            return Ok(None);
        }
        tracing::info!("{version} was installed while no agent ran; waiting until it is healthy");
        let mark = self.service.mark_run();
        match self.wait_until_healthy(&version, None, mark.as_ref(), is_reachable) {
            Ok(()) => {
                write_durably(self.disk, &self.layout.proved(&version), b"", 0o644)
                    .and_then(|()| Unproved::clear(self.disk, self.layout, &version))
                    .and_then(|()| self.point_way_back())
                    .map_err(FailedStep::Settle.failed())?;
                Ok(None)
            }
            Err(unhealthy) => {
                let failure = self.blame(unhealthy, mark.as_ref());
                tracing::warn!("{version} failed at {failure}");
                // Without its supervisor an agent proves nothing, neither way.
                if !failure.step.blames_the_version() {
                    return Err(failure);
                }
                self.disprove(&version, from, &record, true, failure).map(Some)
            }
        }
    }

    /// Counts a start of the agent before it happens; undoes the switch instead if there were too many. `start` is how the
    /// service manager calls this start.
    pub(crate) fn count_start(&self, start: Option<&str>) -> Result<Option<Disproved>, StepFailed> {
        let found = Unproved::of_active(self.disk, self.layout).map_err(FailedStep::Recover.failed())?;
        let Some((version, record)) = found else { return Ok(None) };
        let Some(from) = &record.from else { return Ok(None) };
        if self.disk.kind(&self.layout.proved(&version)).map_err(FailedStep::Recover.failed())?.is_some() {
            // By an updater of a release that does not know the record.
            Unproved::clear(self.disk, self.layout, &version)
                .and_then(|()| self.point_way_back())
                .map_err(FailedStep::Recover.failed())?;
            return Ok(None);
        }
        let is_counted = start.is_some() && record.last_start.as_deref() == start;
        if is_counted
            || self.service.state() != Ok(ServiceState::Failing)
            || !self.service.is_agent_start(start)
        {
            return Ok(None);
        }
        if record.starts >= MOST_STARTS && is_complete(self.disk, self.layout, from).unwrap_or(false) {
            let reason = format!("it was started {MOST_STARTS} times and never proved that it works");
            let failure = FailedStep::Health.failure(reason);
            let offline = Environment { service: &crate::NoService, ..*self };
            return offline.disprove(&version, from, &record, false, failure).map(Some);
        }
        let counted = Unproved {
            starts: record.starts.saturating_add(1),
            last_start: start.map(str::to_owned),
            ..record.clone()
        };
        counted.store(self.disk, self.layout, &version).map_err(FailedStep::Recover.failed())?;
        tracing::info!("{version} has not proved yet that it works; the updater checks it after its start");
        if let Err(error) = self.service.request_update() {
            tracing::warn!("The updater was not asked to check {version}; its next run does: {error}");
        }
        Ok(None)
    }

    /// Goes back to the version before, as from a switch that failed, and saves the failure.
    fn disprove(
        &self,
        version: &Version,
        from: &Version,
        record: &Unproved,
        runs: bool,
        failure: StepFailed,
    ) -> Result<Disproved, StepFailed> {
        let journal = Journal {
            from: Some(from.clone()),
            to: version.clone(),
            step: Step::Switching,
            backed_up: record.backed_up,
            runs,
        };
        journal.store(self.disk, self.layout).map_err(FailedStep::Journal.failed())?;
        self.roll_back(&journal)?;
        let disproved =
            Disproved { version: version.clone(), from: from.clone(), attempt: record.attempt, failure };
        let at = self.clock.moment();
        let Disproved { attempt, failure, .. } = &disproved;
        if let Err(error) = failure_log::write(self.disk, self.layout, version, *attempt, failure, &at) {
            tracing::warn!("The log of the failure could not be saved: {error}");
        }
        if let Err(error) = status_file::save_disproved(self.disk, self.layout, &disproved, &at) {
            tracing::warn!("The failure could not be saved: {error}");
        }
        Ok(disproved)
    }
}
