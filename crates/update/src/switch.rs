//! From one version to another, with a way back from every moment of it.

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::Version;

use crate::backup::{back_up, restore, usable};
use crate::disk::{Disk, FileKind, parent, point_durably};
use crate::health::{self, Verdict};
use crate::host::{Agent, Clock, ControlPlane, HostError, Service, ServiceState};
use crate::journal::{Journal, Step};
use crate::layout::Layout;
use crate::profile::Profile;
use crate::{BackupSpec, Circumstances, Unusable, links};

/// What a switch works with.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
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

/// A step that failed, and why: kept for the operator and the control plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {reason}")]
pub struct StepFailed {
    /// Which step.
    pub step: &'static str,
    /// Why.
    pub reason: String,
}

/// How a switch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switched {
    /// The new version is active, and proved that it works if it was to run.
    Done,
    /// It was undone: the old version is active again, with its own database.
    Undone(StepFailed),
}

pub(crate) fn failed(step: &'static str) -> impl Fn(io::Error) -> StepFailed {
    move |error| StepFailed { step, reason: error.to_string() }
}

fn host_failed(step: &'static str) -> impl Fn(HostError) -> StepFailed {
    move |error| StepFailed { step, reason: error.to_string() }
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

impl Parts<'_> {
    /// Switches to a version that is complete. What is left is backed up first, and the way back is durable
    /// before anything changes.
    pub fn switch(
        &self,
        from: Option<&Version>,
        to: &Version,
        database: Database,
        attempt: u64,
        proxy: &str,
    ) -> Result<Switched, StepFailed> {
        self.validate(to)?;
        if let Some(from) = from {
            self.back_up(from, proxy)?;
        }
        let runs = self.service.state().map_err(host_failed("service"))? != ServiceState::Stopped;
        let journal = Journal { from: from.cloned(), to: to.clone(), step: Step::Pointing, attempt };
        journal.store(self.disk, self.layout).map_err(failed("journal"))?;
        match self.go(&journal, database, runs) {
            Ok(()) => {
                self.settle(to).map_err(failed("settle"))?;
                Ok(Switched::Done)
            }
            Err(reason) => {
                let stored = Journal::load(self.disk, self.layout).map_err(failed("undo"))?;
                self.undo(&stored.unwrap_or(journal), runs)?;
                Ok(Switched::Undone(reason))
            }
        }
    }

    /// Every binary of the version runs, or none is switched to.
    fn validate(&self, to: &Version) -> Result<(), StepFailed> {
        let folder = self.layout.version(to).join("bin");
        for binary in &self.profile.binaries {
            let path = folder.join(binary);
            if self.disk.kind(&path).map_err(failed("validate"))?.is_none() {
                continue;
            }
            let found = self.agent.version_of(&path).map_err(host_failed("validate"))?;
            if found != *to {
                let reason = format!("{binary} of {to} says that it is {found}");
                return Err(StepFailed { step: "validate", reason });
            }
        }
        Ok(())
    }

    fn back_up(&self, from: &Version, proxy: &str) -> Result<(), StepFailed> {
        let has_database = self.disk.kind(&self.layout.database()).map_err(failed("backup"))?.is_some();
        if !has_database {
            return Ok(());
        }
        let identity = self.agent.identity();
        let spec = BackupSpec {
            proxy: proxy.to_owned(),
            version: from.clone(),
            creation_time: self.clock.now(),
            identity_valid_until: identity.valid_until,
            identity_issuer: identity.issuer,
        };
        back_up(self.disk, self.layout, &spec).map_err(failed("backup"))
    }

    fn go(&self, journal: &Journal, database: Database, runs: bool) -> Result<(), StepFailed> {
        let to = &journal.to;
        let running = Journal { step: Step::Running, ..journal.clone() };
        links::place(self.disk, self.layout, self.profile).map_err(failed("link"))?;
        if database == Database::Restore {
            self.service.stop().map_err(host_failed("stop"))?;
            running.store(self.disk, self.layout).map_err(failed("journal"))?;
            restore(self.disk, self.layout, to).map_err(failed("restore"))?;
        }
        self.point(to).map_err(failed("switch"))?;
        self.service.refresh().map_err(host_failed("service"))?;
        if !runs {
            return Ok(());
        }
        running.store(self.disk, self.layout).map_err(failed("journal"))?;
        let since = self.clock.now();
        match database {
            Database::Keep => self.service.reload().map_err(host_failed("restart"))?,
            Database::Restore => self.service.start().map_err(host_failed("restart"))?,
        }
        let reaches = || self.control.find().is_ok();
        match health::wait(self.agent, self.clock, &reaches, to, since) {
            Verdict::Healthy => Ok(()),
            Verdict::Unhealthy(reason) => Err(StepFailed { step: "health", reason }),
        }
    }

    fn point(&self, to: &Version) -> io::Result<()> {
        point_durably(self.disk, &self.layout.active(), &self.layout.active_target(to))
    }

    /// The switch holds: what was only kept for the way back can go.
    fn settle(&self, to: &Version) -> io::Result<()> {
        Journal::clear(self.disk, self.layout)?;
        links::forget_replaced(self.disk, self.layout)?;
        links::drop_dangling(self.disk, self.layout, self.profile, to)
    }

    /// Goes back to what was before, pointer and database.
    fn undo(&self, journal: &Journal, runs: bool) -> Result<(), StepFailed> {
        if journal.step == Step::Running {
            self.service.stop().map_err(host_failed("undo"))?;
            if let Some(from) = &journal.from
                && self.has_backup(from).map_err(failed("undo"))?
            {
                restore(self.disk, self.layout, from).map_err(failed("undo"))?;
            }
        }
        match &journal.from {
            Some(from) => self.point(from).map_err(failed("undo"))?,
            None => self.point_nowhere().map_err(failed("undo"))?,
        }
        Journal::clear(self.disk, self.layout).map_err(failed("undo"))?;
        self.service.refresh().map_err(host_failed("undo"))?;
        if runs {
            self.service.start().map_err(host_failed("undo"))?;
        }
        Ok(())
    }

    fn has_backup(&self, version: &Version) -> io::Result<bool> {
        Ok(self.disk.kind(&self.layout.backup(version).join("backup.yaml"))?.is_some())
    }

    fn point_nowhere(&self) -> io::Result<()> {
        crate::backup::remove_if_there(self.disk, &self.layout.active())?;
        self.disk.sync_dir(parent(&self.layout.active()))?;
        links::put_back(self.disk, self.layout, self.profile)
    }

    /// Undoes what an updater was cut off in the middle of; what it undid, if anything. With `offline`, the
    /// agent is known not to run, and nobody is asked to stop or start it.
    pub fn recover(&self, offline: bool) -> Result<Option<Journal>, StepFailed> {
        let Some(journal) = Journal::load(self.disk, self.layout).map_err(failed("recover"))? else {
            return Ok(None);
        };
        let runs = !offline && self.service.state().map_err(host_failed("recover"))? != ServiceState::Stopped;
        if offline {
            Parts { service: &crate::NoService, ..*self }.undo(&journal, false)?;
        } else {
            self.undo(&journal, runs)?;
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
