//! From one version to another, with a way back from every moment of it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::Version;

use crate::backup::{back_up, back_up_before, give_back, prepare, restore, usable};
use crate::disk::{Disk, FileKind, parent, point, point_durably, write_durably};
use crate::failure::{FailedStep, StepFailed};
use crate::health::{self, Verdict};
use crate::host::{Agent, Clock, ControlPlane, Service, ServiceState};
use crate::journal::{Journal, Step};
use crate::layout::Layout;
use crate::profile::Profile;
use crate::{BackupSpec, Circumstances, NoService, Unusable, links, units};

/// What a switch works with.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// Where everything is.
    pub layout: &'a Layout,
    /// What is managed.
    pub profile: &'a Profile,
    /// Who starts and stops the agent.
    pub service: &'a dyn Service,
    /// The agent.
    pub agent: &'a dyn Agent,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Who says what to run.
    pub control: &'a dyn ControlPlane,
}

/// What becomes of the agent's database when versions change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// The new version goes on with what is there.
    Keep,
    /// It gets back what it had when it was left.
    Restore,
}

/// Where a switch leads.
#[derive(Debug, Clone, Copy)]
pub struct SwitchPlan<'a> {
    /// What is active; nothing on a fresh host.
    pub from: Option<&'a Version>,
    /// What is to be.
    pub to: &'a Version,
    /// What becomes of the database.
    pub database: Database,
    /// The control plane that the agent belongs to.
    pub proxy: &'a str,
}

/// Who asks for a recovery: whether there may be an agent to stop, and to start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Whoever starts the agent next, and wants nothing else started or stopped meanwhile.
    BeforeStart,
    /// Somebody on a host that is up: the agent stops for it, and runs again if it ran before the switch.
    Online,
}

/// How a switch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switched {
    /// The new version is active, and proved that it works if it was to run.
    Done,
    /// It was called off before anything changed.
    CalledOff,
    /// It was undone: the old version is active again, with its own database.
    Undone(StepFailed),
}

/// The version that the pointer names.
pub fn active_version(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<Version>> {
    match disk.kind(&layout.active())? {
        Some(FileKind::Link) => {
            let target = disk.read_link(&layout.active())?;
            let name = target.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            Ok(name.and_then(|name| name.parse().ok()))
        }
        _ => Ok(None),
    }
}

/// Whether a version is on the disk, whole.
pub fn is_complete(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<bool> {
    Ok(disk.kind(&layout.checksum(version))?.is_some())
}

/// What becomes of the database on the way to a version: a downgrade needs the backup that was made when that
/// version was left; a version that is gone back to gets its own back too; all others go on with what is there.
pub fn database_for(
    disk: &dyn Disk,
    layout: &Layout,
    from: Option<&Version>,
    to: &Version,
    circumstances: &Circumstances,
) -> Result<Database, Unusable> {
    let is_downgrade = from.is_some_and(|from| to < from);
    match usable(disk, layout, to, circumstances) {
        Ok(_) if from.is_some() => Ok(Database::Restore),
        Ok(_) => Ok(Database::Keep),
        Err(reason) if is_downgrade => Err(reason),
        Err(_) => Ok(Database::Keep),
    }
}

impl Environment<'_> {
    /// Switches to a version that is complete. What is left is backed up first, and the way back is durable
    /// before anything changes; `still` is asked last before that.
    pub fn switch(
        &self,
        way: SwitchPlan<'_>,
        still: &dyn Fn() -> Result<bool, StepFailed>,
    ) -> Result<Switched, StepFailed> {
        let SwitchPlan { from, to, database, .. } = way;
        self.validate(to)?;
        let backed_up = self.back_up(way)?;
        if database == Database::Restore {
            prepare(self.disk, self.layout, to).map_err(FailedStep::Backup.failed())?;
        }
        units::forget_reserved(self.disk, self.layout, self.profile).map_err(FailedStep::Link.failed())?;
        let state = self.service.state().map_err(FailedStep::Service.failed())?;
        if !still()? {
            return Ok(Switched::CalledOff);
        }
        let journal = Journal {
            from: from.cloned(),
            to: to.clone(),
            step: Step::Pointing,
            backed_up,
            runs: state != ServiceState::Stopped,
        };
        journal.store(self.disk, self.layout).map_err(FailedStep::Journal.failed())?;
        let gone = self.go(&journal, database, state);
        let settled =
            gone.and_then(|()| Journal::clear(self.disk, self.layout).map_err(FailedStep::Settle.failed()));
        match settled {
            Ok(()) => {
                if let Err(error) = self.settle(to, state) {
                    tracing::warn!("What was kept for the way back could not be removed: {error}");
                }
                Ok(Switched::Done)
            }
            Err(failure) => {
                tracing::warn!("{to} failed at {failure}");
                Ok(Switched::Undone(self.undo_after(journal, failure, state)))
            }
        }
    }

    /// Every binary of the version runs, or none is switched to.
    fn validate(&self, to: &Version) -> Result<(), StepFailed> {
        let folder = self.layout.version(to).join("bin");
        for binary in &self.profile.binaries {
            let path = folder.join(binary);
            if self.disk.kind(&path).map_err(FailedStep::Validate.failed())?.is_none() {
                let reason = format!("{to} has no {binary}");
                return Err(FailedStep::Validate.failure(reason));
            }
            let found = self.agent.version_of(&path).map_err(FailedStep::Validate.failed())?;
            if found != *to {
                let reason = format!("{binary} of {to} says that it is {found}");
                return Err(FailedStep::Validate.failure(reason));
            }
        }
        tracing::info!("All binaries of {to} run: {}", self.profile.binaries.join(", "));
        Ok(())
    }

    /// Whether there was anything to back up.
    fn back_up(&self, SwitchPlan { from, proxy, .. }: SwitchPlan<'_>) -> Result<bool, StepFailed> {
        if self.disk.kind(&self.layout.database()).map_err(FailedStep::Backup.failed())?.is_none() {
            return Ok(false);
        }
        let Some(from) = from else {
            back_up_before(self.disk, self.layout).map_err(FailedStep::Backup.failed())?;
            tracing::info!("Backed up the database that was there before");
            return Ok(true);
        };
        let identity = self.agent.identity();
        let spec = BackupSpec {
            proxy: proxy.to_owned(),
            version: from.clone(),
            creation_time: self.clock.now(),
            identity_valid_until: identity.valid_until,
            identity_issuer: identity.issuer,
            proved: self.is_proved(from).map_err(FailedStep::Backup.failed())?,
        };
        back_up(self.disk, self.layout, &spec).map_err(FailedStep::Backup.failed())?;
        tracing::info!("Backed up the database of {from}");
        Ok(true)
    }

    /// Whether a version ever worked: when it was switched to, since then, or now.
    pub(crate) fn is_proved(&self, version: &Version) -> io::Result<bool> {
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

    fn go(&self, journal: &Journal, database: Database, state: ServiceState) -> Result<(), StepFailed> {
        let to = &journal.to;
        links::place(self.disk, self.layout, self.profile).map_err(FailedStep::Link.failed())?;
        // From here on whoever starts the agent may start the new version.
        let running = Journal { step: Step::Running, ..journal.clone() };
        running.store(self.disk, self.layout).map_err(FailedStep::Journal.failed())?;
        // Only an agent of ours was started by a path that leads to the new version.
        let reloads = state == ServiceState::Running && database == Database::Keep && journal.from.is_some();
        if state != ServiceState::Stopped && !reloads || database == Database::Restore {
            tracing::info!("Stopping {}", self.layout.unit());
            self.service.stop().map_err(FailedStep::Stop.failed())?;
        }
        if database == Database::Restore {
            restore(self.disk, self.layout).map_err(FailedStep::Restore.failed())?;
            tracing::info!("Restored the database that {to} had when it was left");
        }
        if let Some(from) = &journal.from {
            let (back, target) = (self.layout.active_back(), self.layout.active_target(from));
            point_durably(self.disk, &back, &target).map_err(FailedStep::Switch.failed())?;
            units::reserve(self.disk, self.layout, self.profile, to).map_err(FailedStep::Switch.failed())?;
        }
        let since = self.clock.now();
        point(self.disk, &self.layout.active(), &self.layout.active_target(to))
            .map_err(FailedStep::Switch.failed())?;
        if reloads {
            // While the agent starts, the rest is done: the journal has the way back from all of it.
            self.service.reload().map_err(FailedStep::Restart.failed())?;
        }
        self.disk.sync_dir(parent(&self.layout.active())).map_err(FailedStep::Switch.failed())?;
        tracing::info!("{} now leads to {to}", self.layout.active().display());
        if self.place_units(to, journal.from.is_none()).map_err(FailedStep::Link.failed())? {
            self.service.refresh().map_err(FailedStep::Service.failed())?;
        }
        let unit = self.layout.unit();
        match (state, reloads) {
            (ServiceState::Stopped, _) => {
                tracing::info!("{unit} does not run and is not started");
                return Ok(());
            }
            (_, true) => tracing::info!("Reloaded {unit}"),
            (_, false) => {
                self.service.start().map_err(FailedStep::Restart.failed())?;
                tracing::info!("Started {unit}");
            }
        }
        self.is_healthy(to, since).map_err(FailedStep::Health.failed())
    }

    fn is_healthy(&self, version: &Version, since: Timestamp) -> Result<(), String> {
        let reaches = || self.control.find().is_ok();
        match health::wait(self.agent, self.clock, &reaches, version, since) {
            Verdict::Healthy => {
                tracing::info!("{version} is healthy");
                Ok(())
            }
            Verdict::Unhealthy(reason) => Err(reason),
        }
    }

    fn point_back(&self, from: &Version) -> io::Result<()> {
        let (back, active) = (self.layout.active_back(), self.layout.active());
        let is_there = self.disk.kind(&back)? == Some(FileKind::Link)
            && self.disk.read_link(&back)? == self.layout.active_target(from);
        if is_there {
            self.disk.rename(&back, &active)?;
            self.disk.sync_dir(parent(&active))
        } else if active_version(self.disk, self.layout)?.as_ref() == Some(from) {
            Ok(())
        } else {
            point_durably(self.disk, &active, &self.layout.active_target(from))
        }
    }

    /// The switch holds: what was only kept for the way back can go.
    fn settle(&self, to: &Version, state: ServiceState) -> io::Result<()> {
        if state != ServiceState::Stopped {
            write_durably(self.disk, &self.layout.proved(to), b"", 0o644)?;
        }
        self.forget_before()?;
        crate::backup::remove_if_there(self.disk, &self.layout.active_back())?;
        units::forget_reserved(self.disk, self.layout, self.profile)?;
        links::forget_replaced(self.disk, self.layout)?;
        links::drop_dangling(self.disk, self.layout, self.profile, to)
    }

    fn forget_before(&self) -> io::Result<()> {
        match self.disk.kind(&self.layout.backup_before())? {
            Some(_) => self.disk.remove_dir_all(&self.layout.backup_before()),
            None => Ok(()),
        }
    }

    /// Goes back after a failure, and says what became of it.
    fn undo_after(&self, journal: Journal, failure: StepFailed, state: ServiceState) -> StepFailed {
        let since = self.clock.now();
        let undone = Journal::load(self.disk, self.layout)
            .map_err(FailedStep::Undo.failed())
            .and_then(|stored| self.undo(&stored.unwrap_or_else(|| journal.clone())));
        let more = match (undone, &journal.from) {
            (Err(error), _) => format!("; the way back failed at {error}; the next update tries it again"),
            (Ok(()), Some(from)) if state == ServiceState::Running => match self.is_healthy(from, since) {
                Ok(()) => return failure,
                Err(reason) => format!("; {from} is active again and does not work either: {reason}"),
            },
            (Ok(()), _) => return failure,
        };
        StepFailed { reason: failure.reason + &more, ..failure }
    }

    /// Goes back to what was before, pointer and database.
    fn undo(&self, journal: &Journal) -> Result<(), StepFailed> {
        if journal.step == Step::Running {
            self.service.stop().map_err(FailedStep::Undo.failed())?;
            if journal.backed_up {
                give_back(self.disk, self.layout, &self.backup_of(journal))
                    .map_err(FailedStep::Undo.failed())?;
            }
        }
        match &journal.from {
            Some(from) => self.point_back(from).map_err(FailedStep::Undo.failed())?,
            None => self.point_nowhere().map_err(FailedStep::Undo.failed())?,
        }
        let has_changed = match &journal.from {
            Some(from) => {
                tracing::info!("Went back to {from} and its database");
                units::take_reserved(self.disk, self.layout, self.profile)
                    .map_err(FailedStep::Undo.failed())?
            }
            None => {
                tracing::info!("Went back to what was there before");
                true
            }
        };
        if has_changed {
            self.service.refresh().map_err(FailedStep::Undo.failed())?;
        }
        if journal.runs {
            tracing::info!("Starting {}", self.layout.unit());
            self.service.start().map_err(FailedStep::Undo.failed())?;
        }
        // Last: whoever is cut off before has it all to do again, and it can be done again.
        Journal::clear(self.disk, self.layout).map_err(FailedStep::Undo.failed())
    }

    fn backup_of(&self, journal: &Journal) -> PathBuf {
        match &journal.from {
            Some(from) => self.layout.backup(from),
            None => self.layout.backup_before(),
        }
    }

    fn point_nowhere(&self) -> io::Result<()> {
        crate::backup::remove_if_there(self.disk, &self.layout.active())?;
        self.disk.sync_dir(parent(&self.layout.active()))?;
        links::put_back(self.disk, self.layout, self.profile)?;
        units::put_back(self.disk, self.layout, self.profile)?;
        links::forget_replaced(self.disk, self.layout)
    }

    pub(crate) fn place_units(&self, version: &Version, is_fresh: bool) -> io::Result<bool> {
        units::place(self.disk, self.layout, self.profile, version, is_fresh)
    }

    /// Undoes what an updater was cut off in the middle of; what it undid, if anything. An agent that runs although it is
    /// only to start is stopped for it, and started again.
    pub fn recover(&self, recovery: Recovery) -> Result<Option<Journal>, StepFailed> {
        let Some(journal) = Journal::load(self.disk, self.layout).map_err(FailedStep::Recover.failed())?
        else {
            return Ok(None);
        };
        tracing::warn!("An update to {} was cut off; going back", journal.to);
        let is_online = match recovery {
            Recovery::Online => true,
            Recovery::BeforeStart => matches!(self.service.state(), Ok(ServiceState::Running)),
        };
        match is_online {
            true => self.undo(&journal)?,
            false => Environment { service: &NoService, ..*self }.undo(&journal)?,
        }
        Ok(Some(journal))
    }
}

/// How long after a failure the same version is tried again: longer each time.
pub fn next_try(failures: u32, failed_at: Timestamp) -> Timestamp {
    const FIRST: Duration = Duration::from_secs(30 * 60);
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    let wait = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST);
    failed_at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
