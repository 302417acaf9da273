//! From an unfinished switch back to the version before it, with its database. Called by a switch that failed and by
//! `recover`; works by renames and removals only, so that a full disk cannot prevent it, and can be repeated.

use std::io;
use std::path::PathBuf;

use refit_types::Version;

use crate::backup::roll_back_database;
use crate::disk::{FileKind, parent, point_durably, remove_if_present};
use crate::environment::Environment;
use crate::failure::{FailedStep, StepFailed};
use crate::host::ServiceState;
use crate::journal::{Journal, Step};
use crate::versions::{active_version, is_complete};
use crate::{Disproved, NoService, Unproved, links, units};

/// Whether a recovery may stop and start the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Before the agent's service starts: it is only stopped if it runs after all. Nothing is started but the updater, which
    /// checks a version that has not proved itself yet.
    BeforeStart,
    /// On a host that is up: the agent is stopped, and started again if it ran before the switch.
    Online,
}

/// What a recovery has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// There was nothing to roll back.
    Nothing,
    /// The switch of this journal was interrupted, and was rolled back.
    Interrupted(Journal),
    /// The active version was started too often without a proof that it works, and was rolled back.
    Disproved(Disproved),
}

impl Environment<'_> {
    /// Rolls back a switch that was interrupted, and removes what a finished one left. `start` is how the service manager
    /// calls the start that follows.
    pub fn recover(&self, recovery: Recovery, start: Option<&str>) -> Result<Recovered, StepFailed> {
        let Some(journal) = Journal::load(self.disk, self.layout).map_err(FailedStep::Recover.failed())?
        else {
            self.remove_leftovers();
            let disproved = match recovery {
                Recovery::BeforeStart => self.count_start(start)?,
                Recovery::Online => None,
            };
            return Ok(disproved.map_or(Recovered::Nothing, Recovered::Disproved));
        };
        tracing::warn!("An update to {} was interrupted; rolling back", journal.to);
        let is_online = match recovery {
            Recovery::Online => true,
            Recovery::BeforeStart => matches!(self.service.state(), Ok(ServiceState::Running)),
        };
        match is_online {
            true => {
                let _manager = self.service.manager().map_err(FailedStep::Undo.failed())?;
                self.roll_back(&journal)?;
            }
            false => Environment { service: &NoService, ..*self }.roll_back(&journal)?,
        }
        Ok(Recovered::Interrupted(journal))
    }

    /// Restores the pointer, the database and the units of the version before.
    pub(crate) fn roll_back(&self, journal: &Journal) -> Result<(), StepFailed> {
        if journal.step == Step::Switching {
            self.service.stop().map_err(FailedStep::Undo.failed())?;
            if journal.backed_up {
                let _agents = self.agent.lock_out().map_err(FailedStep::Undo.failed())?;
                roll_back_database(self.disk, self.layout, &self.backup_of(journal))
                    .map_err(FailedStep::Undo.failed())?;
            }
        }
        match &journal.from {
            Some(from) => self.point_back(from).map_err(FailedStep::Undo.failed())?,
            None => self.remove_pointer().map_err(FailedStep::Undo.failed())?,
        }
        let has_changed = match &journal.from {
            Some(from) => {
                tracing::info!("Rolled back to {from} and its database");
                self.restore_units(from).map_err(FailedStep::Undo.failed())?
            }
            None => {
                tracing::info!("Rolled back to the state before the first installation");
                true
            }
        };
        if has_changed {
            self.service.refresh().map_err(FailedStep::Undo.failed())?;
        }
        Unproved::clear(self.disk, self.layout, &journal.to).map_err(FailedStep::Undo.failed())?;
        let is_masked = units::is_masked(self.disk, self.layout).map_err(FailedStep::Undo.failed())?;
        match (journal.runs, is_masked) {
            (true, true) => tracing::warn!("{} is masked and is not started", self.layout.unit()),
            (true, false) => {
                tracing::info!("Starting {}", self.layout.unit());
                self.service.start().map_err(FailedStep::Undo.failed())?;
            }
            (false, _) => {}
        }
        // Last: a rollback that is interrupted before this is repeated from the start.
        Journal::clear(self.disk, self.layout).map_err(FailedStep::Undo.failed())?;
        self.remove_leftovers();
        Ok(())
    }

    fn point_back(&self, from: &Version) -> io::Result<()> {
        let (back, active) = (self.layout.active_back(), self.layout.active());
        let is_prepared = self.disk.kind(&back)? == Some(FileKind::Link)
            && self.disk.read_link(&back)? == self.layout.active_target(from);
        if is_prepared {
            self.disk.rename(&back, &active)?;
            self.disk.sync_dir(parent(&active))
        } else if active_version(self.disk, self.layout)?.as_ref() == Some(from) {
            Ok(())
        } else {
            point_durably(self.disk, &active, &self.layout.active_target(from))
        }
    }

    /// Returns whether any unit has changed.
    fn restore_units(&self, from: &Version) -> io::Result<bool> {
        let has_restored = units::restore_saved(self.disk, self.layout, self.profile)?;
        let has_placed = is_complete(self.disk, self.layout, from)? && self.place_units(from, false)?;
        Ok(has_restored || has_placed)
    }

    /// The rollback of a first installation: what it replaced comes back.
    fn remove_pointer(&self) -> io::Result<()> {
        remove_if_present(self.disk, &self.layout.active())?;
        self.disk.sync_dir(parent(&self.layout.active()))?;
        links::restore_all(self.disk, self.layout, self.profile)?;
        units::restore_all(self.disk, self.layout, self.profile)?;
        links::remove_replaced(self.disk, self.layout)
    }

    fn backup_of(&self, journal: &Journal) -> PathBuf {
        match &journal.from {
            Some(from) => self.layout.backup(from),
            None => self.layout.first_backup(),
        }
    }
}
