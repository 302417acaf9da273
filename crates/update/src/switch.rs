//! The switch from one version to another: backup, journal, pointer, restart, health. Called by `updater`; a step that
//! fails after the journal is written is rolled back by `rollback`.

use std::io;

use refit_types::Version;

use crate::agent_run::failed_agent;
use crate::backup::{back_up, back_up_foreign, check_backup, prepare_restore, restore};
use crate::disk::{Disk, parent, point, point_durably, write_durably};
use crate::environment::Environment;
use crate::failure::{FailedStep, StepFailed};
use crate::health::{self, Questions, Unhealthy};
use crate::host::{ControlPlane, Manager, ProbeError, ServiceState, StartId};
use crate::journal::{Journal, Step};
use crate::layout::Layout;
use crate::{BackupError, BackupSpec, RestoreConditions, RunEnd, RunMark, Unproved, links, units};

/// What becomes of the agent's database in a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// The new version continues with the current database.
    Keep,
    /// The new version gets back the database it had when it was last active.
    Restore,
}

/// One switch.
#[derive(Debug, Clone, Copy)]
pub struct SwitchPlan<'a> {
    /// The active version; nothing on a fresh host.
    pub from: Option<&'a Version>,
    /// The version to activate, which is complete on the disk.
    pub to: &'a Version,
    /// What becomes of the database.
    pub database: Database,
    /// The control plane that the agent belongs to, as the backup records it.
    pub proxy: &'a str,
    /// Whether the control plane has to confirm the version right before the pointer moves.
    pub confirm: bool,
    /// The attempt, as the control plane counts it.
    pub attempt: u64,
}

/// Whether the new version has shown that it works when the switch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Its agent is healthy.
    Healthy,
    /// No agent ran: it is proved, or undone, after its next start.
    Pending,
}

/// How a switch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switched {
    /// The new version is active. It is healthy, or recorded as unproved if no agent ran.
    Done,
    /// The control plane no longer wants the version; nothing has changed.
    CalledOff,
    /// It was rolled back: the old version is active again, with its own database.
    Undone(StepFailed),
}

/// A switch whose journal is durable.
#[derive(Debug, Clone, Copy)]
struct Switching<'a> {
    journal: &'a Journal,
    database: Database,
    /// The service before the switch.
    state: ServiceState,
    attempt: u64,
    /// Whether there is a service manager.
    is_managed: bool,
}

/// What becomes of the database in a switch: a downgrade needs the backup that was made when that version was left;
/// an upgrade to a version that was active before restores its backup too; every other version keeps the database.
pub fn database_for(
    disk: &dyn Disk,
    layout: &Layout,
    from: Option<&Version>,
    to: &Version,
    conditions: &RestoreConditions,
) -> Result<Database, BackupError> {
    let is_downgrade = from.is_some_and(|from| to < from);
    match check_backup(disk, layout, to, conditions) {
        Ok(_) if from.is_some() => Ok(Database::Restore),
        Ok(_) => Ok(Database::Keep),
        Err(reason) if is_downgrade => Err(reason),
        Err(_) => Ok(Database::Keep),
    }
}

impl Environment<'_> {
    /// Switches to a version. The database is backed up and the journal is durable before anything changes; an
    /// error means that nothing has.
    pub fn switch(
        &self,
        plan: SwitchPlan<'_>,
        control_plane: &dyn ControlPlane,
    ) -> Result<Switched, StepFailed> {
        let SwitchPlan { from, to, database, confirm, attempt, .. } = plan;
        self.validate(to)?;
        let backed_up = self.back_up(plan)?;
        if database == Database::Restore {
            prepare_restore(self.disk, self.layout, to).map_err(FailedStep::Backup.failed())?;
        }
        units::remove_saved(self.disk, self.layout, self.profile).map_err(FailedStep::Link.failed())?;
        let manager = self.service.manager().map_err(FailedStep::Service.failed())?;
        let agents = match manager {
            Manager::Absent(_) => Some(self.agent.lock_out().map_err(FailedStep::Service.failed())?),
            Manager::Present => None,
        };
        let mut state = self.service.state().map_err(FailedStep::Service.failed())?;
        if agents.is_none()
            && state == ServiceState::Stopped
            && let Err(error) = self.agent.lock_out()
        {
            // One that was started by hand would be neither stopped nor restarted.
            state = self.service.state().map_err(FailedStep::Service.failed())?;
            if state == ServiceState::Stopped {
                return Err(FailedStep::Service.failure(error));
            }
        }
        self.refuse_queued(state)?;
        self.refuse_masked(state)?;
        if confirm && !is_still_due(control_plane, to)? {
            return Ok(Switched::CalledOff);
        }
        let journal = Journal {
            from: from.cloned(),
            to: to.clone(),
            step: Step::Prepared,
            backed_up,
            runs: state != ServiceState::Stopped,
        };
        journal.store(self.disk, self.layout).map_err(FailedStep::Journal.failed())?;
        let switching =
            Switching { journal: &journal, database, state, attempt, is_managed: agents.is_none() };
        let activated =
            self.activate(switching, control_plane).and_then(|proof| self.commit(&journal, proof));
        match activated {
            Ok(()) => {
                self.remove_leftovers();
                Ok(Switched::Done)
            }
            Err(failure) => {
                drop(agents);
                tracing::warn!("{to} failed at {failure}");
                Ok(Switched::Undone(self.roll_back_after(journal, failure, state, control_plane)))
            }
        }
    }

    /// A version could not prove itself in time while its start waits for something else. Nothing has changed, so the next
    /// try finds the agent started.
    fn refuse_queued(&self, state: ServiceState) -> Result<(), StepFailed> {
        match state {
            ServiceState::Queued => Err(FailedStep::Service.failure(format!(
                "{unit} is about to be started and waits for other units (`systemctl list-jobs`)",
                unit = self.layout.unit()
            ))),
            ServiceState::Running | ServiceState::Failing | ServiceState::Stopped => Ok(()),
        }
    }

    /// Whether a service that does not run is started with the new version. The agent of a first installation may have no
    /// configuration yet; its operator starts it.
    fn is_to_be_started(&self, journal: &Journal) -> Result<bool, StepFailed> {
        let config = self.disk.kind(&self.layout.agent_config()).map_err(FailedStep::Service.failed())?;
        let is_configured = journal.from.is_some() || journal.backed_up || config.is_some();
        Ok(is_configured && self.service.is_enabled().map_err(FailedStep::Service.failed())?)
    }

    /// A service that is masked while it runs could be stopped, and never started again.
    fn refuse_masked(&self, state: ServiceState) -> Result<(), StepFailed> {
        let is_masked = units::is_masked(self.disk, self.layout).map_err(FailedStep::Service.failed())?;
        let unit = self.layout.unit();
        match is_masked && state != ServiceState::Stopped {
            true => Err(FailedStep::Service.failure(format!(
                "{unit} runs and is masked, so it could not be started again; `systemctl unmask {unit}` allows it"
            ))),
            false => Ok(()),
        }
    }

    /// Makes the switch final.
    fn commit(&self, journal: &Journal, proof: Proof) -> Result<(), StepFailed> {
        if proof == Proof::Healthy {
            write_durably(self.disk, &self.layout.proved(&journal.to), b"", 0o644)
                .and_then(|()| Unproved::clear(self.disk, self.layout, &journal.to))
                .map_err(FailedStep::Settle.failed())?;
        }
        Journal::clear(self.disk, self.layout).map_err(FailedStep::Settle.failed())
    }

    /// Runs every binary of the version and compares the version that it reports.
    fn validate(&self, to: &Version) -> Result<(), StepFailed> {
        let directory = self.layout.version(to).join("bin");
        for binary in &self.profile.binaries {
            let path = directory.join(binary);
            if self.disk.kind(&path).map_err(FailedStep::Probe.failed())?.is_none() {
                let reason = format!("{to} has no {binary}");
                return Err(FailedStep::Validate.failure(reason));
            }
            let found = self.agent.version_of(&path).map_err(|error| match error {
                ProbeError::Unusable(reason) => FailedStep::Validate.failure(reason),
                ProbeError::Interrupted(reason) => FailedStep::Probe.failure(reason),
            })?;
            if found != *to {
                let reason = format!("{binary} of {to} says that it is {found}");
                return Err(FailedStep::Validate.failure(reason));
            }
        }
        tracing::info!("All binaries of {to} run: {}", self.profile.binaries.join(", "));
        Ok(())
    }

    /// Backs up the database of the version that is left; returns whether there was one.
    fn back_up(&self, SwitchPlan { from, proxy, .. }: SwitchPlan<'_>) -> Result<bool, StepFailed> {
        if self.disk.kind(&self.layout.database()).map_err(FailedStep::Backup.failed())?.is_none() {
            return Ok(false);
        }
        let Some(from) = from else {
            back_up_foreign(self.disk, self.layout).map_err(FailedStep::Backup.failed())?;
            tracing::info!("Backed up the database of the installation before this one");
            return Ok(true);
        };
        let identity = self.agent.identity();
        let spec = BackupSpec {
            proxy: proxy.to_owned(),
            version: from.clone(),
            creation_time: self.clock.now(),
            identity_valid_until: identity.valid_until,
            identity_issuer: identity.issuer,
            proved: self.record_proof(from).map_err(FailedStep::Backup.failed())?,
        };
        back_up(self.disk, self.layout, &spec).map_err(FailedStep::Backup.failed())?;
        tracing::info!("Backed up the database of {from}");
        Ok(true)
    }

    /// Records that a version works if its agent is connected now; returns whether it has ever worked on this host.
    pub(crate) fn record_proof(&self, version: &Version) -> io::Result<bool> {
        if self.disk.kind(&self.layout.proved(version))?.is_some() {
            return Ok(true);
        }
        let condition = self.agent.condition();
        let works = condition.is_some_and(|condition| condition.version == *version && condition.connected);
        if works {
            write_durably(self.disk, &self.layout.proved(version), b"", 0o644)?;
        }
        Ok(works)
    }

    /// Moves the pointer and restarts the agent, and returns when the new version is healthy.
    fn activate(
        &self,
        Switching { journal, database, state, attempt, is_managed }: Switching<'_>,
        control_plane: &dyn ControlPlane,
    ) -> Result<Proof, StepFailed> {
        let to = &journal.to;
        links::place(self.disk, self.layout, self.profile).map_err(FailedStep::Link.failed())?;
        // From here on a start of the agent may start the new version.
        let switching = Journal { step: Step::Switching, ..journal.clone() };
        switching.store(self.disk, self.layout).map_err(FailedStep::Journal.failed())?;
        // An agent of another installation was not started through the `active` link and cannot re-execute into it.
        let reloads = state == ServiceState::Running && database == Database::Keep && journal.from.is_some();
        if state != ServiceState::Stopped && !reloads || database == Database::Restore {
            tracing::info!("Stopping {}", self.layout.unit());
            self.service.stop().map_err(FailedStep::Stop.failed())?;
        }
        if database == Database::Restore {
            let _agents = match is_managed {
                true => Some(self.agent.lock_out().map_err(FailedStep::Restore.failed())?),
                false => None,
            };
            restore(self.disk, self.layout).map_err(FailedStep::Restore.failed())?;
            tracing::info!("Restored the database that {to} had when it was left");
        }
        if let Some(from) = &journal.from {
            let (back, target) = (self.layout.active_back(), self.layout.active_target(from));
            point_durably(self.disk, &back, &target).map_err(FailedStep::Switch.failed())?;
            units::save_for_rollback(self.disk, self.layout, self.profile, to)
                .map_err(FailedStep::Switch.failed())?;
        }
        let before = self.running_start();
        let mut mark = self.service.mark_run();
        point(self.disk, &self.layout.active(), &self.layout.active_target(to))
            .map_err(FailedStep::Switch.failed())?;
        let mut state = state;
        // The agent starts while the rest is done; the journal covers all of it.
        if reloads && let Err(error) = self.service.reload() {
            // Somebody may have stopped it since the switch began.
            if self.service.state() != Ok(ServiceState::Stopped) {
                return Err(FailedStep::Restart.failure(error));
            }
            state = ServiceState::Stopped;
        }
        self.disk.sync_dir(parent(&self.layout.active())).map_err(FailedStep::Switch.failed())?;
        tracing::info!("{} now leads to {to}", self.layout.active().display());
        if self.place_units(to, journal.from.is_none()).map_err(FailedStep::Link.failed())? {
            self.service.refresh().map_err(FailedStep::Service.failed())?;
        }
        let unit = self.layout.unit();
        match (state, reloads) {
            (ServiceState::Stopped, _) => {
                // Before the service is asked again: an agent that starts after the answer is covered by the record.
                self.record_unproved(journal, attempt).map_err(FailedStep::Settle.failed())?;
                let runs =
                    self.service.state().map_err(FailedStep::Service.failed())? != ServiceState::Stopped;
                let starts = is_managed && self.is_to_be_started(journal)?;
                if !runs && !starts {
                    tracing::info!(
                        "{unit} does not run and is not started; {to} is proved at its next start, or undone"
                    );
                    return Ok(Proof::Pending);
                }
                let running = Journal { runs, ..switching };
                running.store(self.disk, self.layout).map_err(FailedStep::Journal.failed())?;
                if runs {
                    tracing::info!("{unit} was started meanwhile and is started again");
                    self.service.stop().map_err(FailedStep::Stop.failed())?;
                } else {
                    tracing::info!("{unit} is enabled and does not run; starting it");
                }
                mark = self.service.mark_run();
                self.service.start().map_err(FailedStep::Restart.failed())?;
            }
            (_, true) => tracing::info!("Reloaded {unit}"),
            (_, false) => {
                self.service.start().map_err(FailedStep::Restart.failed())?;
                tracing::info!("Started {unit}");
            }
        }
        self.wait_until_healthy(to, before.as_ref(), mark.as_ref(), &|| control_plane.find().is_ok())
            .map_err(|unhealthy| {
                if unhealthy.end == Some(RunEnd::Stopped) {
                    // Who stopped the service does not want it started again.
                    let stopped = Journal { step: Step::Switching, runs: false, ..journal.clone() };
                    if let Err(error) = stopped.store(self.disk, self.layout) {
                        return FailedStep::Journal.failure(error);
                    }
                }
                self.blame(unhealthy, mark.as_ref())
            })?;
        Ok(Proof::Healthy)
    }

    /// An agent that is not healthy is the fault of its version, unless its service manager has ended. Asks for what the
    /// agent wrote, so it is called before anything is stopped.
    pub(crate) fn blame(&self, Unhealthy { reason, end }: Unhealthy, mark: Option<&RunMark>) -> StepFailed {
        if end == Some(RunEnd::Stopped) {
            return FailedStep::Service.failure("the service was stopped during the update");
        }
        if let Ok(Manager::Absent(_)) = self.service.manager() {
            let reason = format!("{reason}; the supervisor of the agent has ended");
            return FailedStep::Service.failure(reason);
        }
        let seen_at = self.clock.now();
        let agent = mark.map(|mark| failed_agent(end, seen_at, &self.service.lines_since(mark)));
        StepFailed { agent: agent.map(Box::new), ..FailedStep::Health.failure(reason) }
    }

    /// The start of the agent that answers now: the one after a restart is another.
    fn running_start(&self) -> Option<StartId> {
        self.agent.condition().map(|condition| condition.start)
    }

    pub(crate) fn wait_until_healthy(
        &self,
        version: &Version,
        before: Option<&StartId>,
        mark: Option<&RunMark>,
        is_reachable: &dyn Fn() -> bool,
    ) -> Result<(), Unhealthy> {
        let end = || self.service.end_since(mark?);
        let questions = Questions { is_reachable, end: &end };
        health::wait(self.agent, self.clock, questions, version, before)?;
        tracing::info!("{version} is healthy");
        Ok(())
    }

    /// Rolls back after a failure; returns the failure, with what went wrong in the rollback added to it.
    fn roll_back_after(
        &self,
        journal: Journal,
        failure: StepFailed,
        state: ServiceState,
        control_plane: &dyn ControlPlane,
    ) -> StepFailed {
        let before = self.running_start();
        let stored = Journal::load(self.disk, self.layout).map_err(FailedStep::Undo.failed());
        let rolled_back = stored.and_then(|stored| {
            let stored = stored.unwrap_or_else(|| journal.clone());
            self.roll_back(&stored).map(|()| stored.runs)
        });
        let more = match (rolled_back, &journal.from) {
            (Err(error), _) => format!("; the rollback failed at {error}; the next update repeats it"),
            (Ok(true), Some(from)) if state == ServiceState::Running => {
                // It has worked before, so it may start as often as it takes.
                match self.wait_until_healthy(from, before.as_ref(), None, &|| control_plane.find().is_ok()) {
                    Ok(()) => return failure,
                    Err(Unhealthy { reason, .. }) => {
                        format!("; {from} is active again and is not healthy either: {reason}")
                    }
                }
            }
            (Ok(_), _) => return failure,
        };
        StepFailed { reason: failure.reason + &more, ..failure }
    }

    /// Copies the units of a version into place; returns whether any has changed.
    pub(crate) fn place_units(&self, version: &Version, is_fresh: bool) -> io::Result<bool> {
        units::place(self.disk, self.layout, self.profile, version, is_fresh)
    }
}

/// Asks the control plane whether this host should still go to the version now.
fn is_still_due(control_plane: &dyn ControlPlane, version: &Version) -> Result<bool, StepFailed> {
    let answer = control_plane.find().map_err(FailedStep::Find.failed())?;
    let is_due = answer.auto_update && answer.version == *version;
    tracing::info!("Asked again: {version} is {}", if is_due { "still due" } else { "no longer due" });
    Ok(is_due)
}
