//! What a command finds on the disk and leaves there: configuration, status, pointer, and the log of the last failure. Read
//! once when a command of `updater` starts, and kept up to date with what the command writes.

use std::io;

use refit_types::{UpdaterStatus, Version};

use crate::config::Config;
use crate::environment::Environment;
use crate::host::{Answer, Moment};
use crate::outcome::{Outcome, UpdateError};
use crate::status_file::{self, CommandResult, last_status, next_status};
use crate::versions::active_version;
use crate::{Unproved, Updater, failure_log};

/// What is on the disk when a command starts, kept up to date with what the command writes.
#[derive(Debug)]
pub(crate) struct DiskState {
    pub(crate) config: Config,
    pub(crate) status: UpdaterStatus,
    pub(crate) active: Option<Version>,
}

impl Updater<'_> {
    pub(crate) fn load_state(&self) -> Result<DiskState, UpdateError> {
        let Environment { disk, layout, .. } = self.environment;
        Ok(DiskState {
            config: self.load_config()?,
            status: last_status(disk, layout),
            active: self.load_active()?,
        })
    }

    pub(crate) fn load_config(&self) -> Result<Config, UpdateError> {
        Ok(Config::load(self.environment.disk, &self.environment.layout.config())?)
    }

    pub(crate) fn load_active(&self) -> Result<Option<Version>, UpdateError> {
        active_version(self.environment.disk, self.environment.layout)
            .map_err(|source| UpdateError::Disk { what: "the pointer to the active version", source })
    }

    pub(crate) fn save_config(&self, state: &mut DiskState, config: Config) -> Result<(), UpdateError> {
        config.store(self.environment.disk, &self.environment.layout.config())?;
        state.config = config;
        Ok(())
    }

    /// Brings the copy of the pointer in the configuration up to date.
    pub(crate) fn save_active_version(
        &self,
        state: &mut DiskState,
        active: &Version,
    ) -> Result<(), UpdateError> {
        if state.config.active_version.as_ref() == Some(active) {
            return Ok(());
        }
        let config = Config { active_version: Some(active.clone()), ..state.config.clone() };
        self.save_config(state, config)
    }

    /// Saves a failure. If the disk has no room for it, the failure itself is still what the operator is told.
    pub(crate) fn save_failure(
        &self,
        state: &mut DiskState,
        answer: Option<&Answer>,
        outcome: Outcome,
    ) -> Result<Outcome, UpdateError> {
        self.save_status(state, answer, outcome.clone()).or_else(|error| {
            tracing::warn!("The failure could not be saved: {error}");
            Ok(outcome)
        })
    }

    /// Saves how a command ended, for `status` and for the agent's heartbeat. Only a switch moves the pointer.
    pub(crate) fn save_status(
        &self,
        state: &mut DiskState,
        answer: Option<&Answer>,
        outcome: Outcome,
    ) -> Result<Outcome, UpdateError> {
        if matches!(outcome, Outcome::Switched { .. } | Outcome::Undone { .. }) {
            state.active = self.load_active()?;
        }
        // A rollback before the agent's start leaves this to the next command.
        if let Some(active) = state.active.clone() {
            self.save_active_version(state, &active)?;
        }
        let Environment { disk, layout, clock, .. } = self.environment;
        let unproved = Unproved::of_active(disk, layout)
            .map_err(|source| UpdateError::Disk { what: "the record of an unproved version", source })?
            .is_some();
        let (at, active) = (clock.moment(), state.active.as_ref());
        self.write_failure_log(answer, &at, &outcome);
        let woken_for = self.woken_for;
        let result = CommandResult { config: &state.config, answer, active, at, unproved, woken_for };
        let status = next_status(state.status.clone(), &result, &outcome);
        if status != state.status {
            status_file::save(self.environment.disk, self.environment.layout, &status)
                .map_err(|source: io::Error| UpdateError::Disk { what: "the status", source })?;
            state.status = status;
        }
        if state.status.last_failure.is_none()
            && let Err(error) = failure_log::remove(disk, layout)
        {
            tracing::warn!("The log of the last failure could not be removed: {error}");
        }
        Ok(outcome)
    }

    /// Keeps what is known of a version that failed; the status has a part of it.
    fn write_failure_log(&self, answer: Option<&Answer>, at: &Moment, outcome: &Outcome) {
        let (Outcome::Undone { version, failure } | Outcome::Failed { version, failure }) = outcome else {
            return;
        };
        let Environment { disk, layout, .. } = self.environment;
        let attempt = answer.map(|answer| answer.attempt).unwrap_or_default();
        if let Err(error) = failure_log::write(disk, layout, version, attempt, failure, at) {
            tracing::warn!("The log of the failure could not be saved: {error}");
        }
    }
}
