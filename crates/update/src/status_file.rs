//! `status.json`: what the updater last did, for `status` and for the agent's heartbeat.

use jiff::Timestamp;
use refit_types::{UpdateFailure, UpdaterStatus, Version};

use crate::config::Config;
use crate::host::Answer;
use crate::updater::Outcome;
use crate::{Disk, Layout};

/// What is so when a command has ended.
pub(crate) struct CommandResult<'a> {
    pub(crate) config: &'a Config,
    pub(crate) answer: Option<&'a Answer>,
    pub(crate) active: Option<Version>,
    pub(crate) at: Timestamp,
}

/// The status after a command that came to this.
pub(crate) fn next_status(
    mut status: UpdaterStatus,
    now: &CommandResult<'_>,
    outcome: &Outcome,
) -> UpdaterStatus {
    if status.agent_version_installed != now.active {
        status.agent_version_previous = status.agent_version_installed.take();
        status.agent_edition_previous = status.agent_edition_installed.take();
        status.agent_version_installed = now.active.clone();
        status.agent_edition_installed = now.answer.map(|answer| answer.edition.into());
    }
    status.agent_updates_enabled = now.config.enabled;
    status.pinned_version = now.config.pinned_version.clone();
    if let Some(answer) = now.answer {
        status.agent_version_desired = Some(answer.version.clone());
        status.agent_edition_desired = Some(answer.edition.into());
        status.agent_update_time_jitter = answer.jitter_seconds;
    }
    status.held = match outcome {
        Outcome::Held(why) => Some(why.clone()),
        _ => None,
    };
    match outcome {
        Outcome::Undone { version, failure } | Outcome::Failed { version, failure } => {
            let same = status.last_failure.as_ref().is_some_and(|last| last.version == *version);
            status.failures = if same { status.failures.saturating_add(1) } else { 1 };
            status.last_failure = Some(UpdateFailure {
                attempt: now.answer.map(|answer| answer.attempt).unwrap_or_default(),
                version: version.clone(),
                step: failure.step.as_str().into(),
                reason: failure.reason.clone(),
                at: now.at,
            });
            status.agent_update_time_last = Some(now.at);
        }
        Outcome::Switched { .. } => status.agent_update_time_last = Some(now.at),
        Outcome::Nothing(_) | Outcome::Later(_) | Outcome::Held(_) => {}
    }
    let last = status.last_failure.as_ref().map(|failure| &failure.version);
    let is_active = last.is_some() && last == now.active.as_ref();
    if is_active || matches!(outcome, Outcome::Switched { .. }) {
        (status.last_failure, status.failures) = (None, 0);
    }
    status
}

/// What was last told of the updater of a host; nothing if nothing can be read.
pub fn last_status(disk: &dyn Disk, layout: &Layout) -> UpdaterStatus {
    let read = disk.read(&layout.status()).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
