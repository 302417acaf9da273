//! `status.json`: how the last commands ended, for `status` and for the agent's heartbeat. The one place where a step is
//! turned into the word that is stored, and back.

use std::io;

use refit_types::{StoredWord, UpdateFailure, UpdateObstacle, UpdateTarget, UpdaterStatus, Version};

use crate::agent_run::sent;
use crate::config::Config;
use crate::disk::write_durably;
use crate::failure::{FailedStep, StepFailed};
use crate::host::{Answer, Moment};
use crate::outcome::Outcome;
use crate::told_attempt::{is_called_off, told};
use crate::{Disk, Disproved, Layout};

/// What is known when a command has ended.
pub(crate) struct CommandResult<'a> {
    pub(crate) config: &'a Config,
    pub(crate) answer: Option<&'a Answer>,
    pub(crate) active: Option<&'a Version>,
    pub(crate) at: Moment,
    /// Whether the active version has yet to prove that it works.
    pub(crate) unproved: bool,
    /// The attempt that the agent has woken the updater for.
    pub(crate) woken_for: Option<u64>,
}

/// The status after a command with this outcome.
pub(crate) fn next_status(
    mut status: UpdaterStatus,
    result: &CommandResult<'_>,
    outcome: &Outcome,
) -> UpdaterStatus {
    if status.agent_version_installed.as_ref() != result.active {
        status.agent_version_previous = status.agent_version_installed.take();
        status.agent_edition_previous = status.agent_edition_installed.take();
        status.agent_version_installed = result.active.cloned();
        // Also where the run that switched was cut before it could say so.
        status.agent_update_time_last = Some(result.at.wall);
        status.agent_edition_installed = result.answer.map(|answer| answer.edition.into());
    }
    status.unproved = result.unproved;
    status.agent_updates_enabled = result.config.enabled;
    status.pinned_version = result.config.pinned_version.clone();
    if let Some(answer) = result.answer {
        status.agent_version_desired = Some(answer.version.clone());
        status.agent_edition_desired = Some(answer.edition.into());
        status.agent_update_time_jitter = answer.jitter_seconds;
    }
    let target = result.answer.map(|answer| UpdateTarget {
        version: result.config.pinned_version.clone().unwrap_or_else(|| answer.version.clone()),
        attempt: answer.attempt,
    });
    end_told_attempt(&mut status, result, outcome, target.as_ref());
    (status.held, status.held_target) = match outcome {
        Outcome::Held(why) => {
            // An answer that tells a host to wait names no attempt: the hold is still about the one before.
            let is_same = |held: &UpdateTarget| {
                target.as_ref().is_some_and(|target| target.attempt == 0 && target.version == held.version)
            };
            (Some(why.clone()), status.held_target.filter(is_same).or(target))
        }
        _ => (None, None),
    };
    match outcome {
        Outcome::Obstructed { version, attempt, failure, tries, delay } => {
            status.obstructed_at = Some(result.at.since_boot.clone());
            status.obstacle = Some(UpdateObstacle {
                attempt: *attempt,
                version: version.clone(),
                step: failure.step.as_str().into(),
                reason: failure.reason.clone(),
                at: result.at.wall,
                tries: *tries,
                next_try: result.at.wall.checked_add(*delay).ok(),
            });
        }
        Outcome::Undone { version, failure } | Outcome::Failed { version, failure } => {
            status.obstacle = None;
            let attempt = result.answer.map(|answer| answer.attempt).unwrap_or_default();
            add_failure(&mut status, version, failure, attempt, &result.at);
        }
        Outcome::Switched { .. } => {
            status.obstacle = None;
            status.agent_update_time_last = Some(result.at.wall);
        }
        Outcome::Held(_) | Outcome::CalledOff { .. } => status.obstacle = None,
        Outcome::Nothing(_) | Outcome::Later(_) => {}
    }
    // A host that is told to wait keeps saying what kept it, so that its time-out has a reason.
    let is_there = result.answer.is_some_and(|answer| result.active == Some(&answer.version));
    let is_past = |obstacle: &UpdateObstacle| {
        result.answer.is_some_and(|answer| {
            let is_other_version =
                obstacle.version.as_ref().is_some_and(|version| *version != answer.version);
            is_other_version || answer.attempt != 0 && answer.attempt != obstacle.attempt
        })
    };
    let is_pinned = result.config.pinned_version.is_some();
    // What was kept from beginning, and is not asked for any more, has ended.
    if let Some(UpdateObstacle { attempt, version: Some(version), .. }) =
        status.obstacle.as_ref().filter(|obstacle| obstacle.attempt > 0 && !is_pinned && is_past(obstacle))
    {
        status.called_off = Some(UpdateTarget { version: version.clone(), attempt: *attempt });
    }
    status.obstacle = status.obstacle.filter(|obstacle| !is_there && (is_pinned || !is_past(obstacle)));
    status.obstructed_at = status.obstructed_at.filter(|_| status.obstacle.is_some());
    let last = status.last_failure.as_ref().map(|failure| &failure.version);
    let is_active = last.is_some() && last == result.active;
    if is_active || matches!(outcome, Outcome::Switched { .. }) {
        (status.last_failure, status.failed_at, status.failures) = (None, None, 0);
    }
    status
}

/// Keeps track of the attempt that this host was told to make, and reports one that was called off.
fn end_told_attempt(
    status: &mut UpdaterStatus,
    result: &CommandResult<'_>,
    outcome: &Outcome,
    target: Option<&UpdateTarget>,
) {
    let told = told(status, result.answer, result.woken_for);
    if let (Some(_), Some(woken_for)) = (result.answer, result.woken_for) {
        status.woken_for = woken_for;
    }
    let is_past = |told: &UpdateTarget| {
        result.answer.is_some_and(|answer| is_called_off(told, answer, status.obstacle.is_some()))
    };
    let called_off = match outcome {
        Outcome::CalledOff { .. } => told.clone().or(target.cloned()),
        // Another attempt may have taken its place.
        Outcome::Nothing(_) | Outcome::Later(_) => {
            [&told, &status.told].into_iter().flatten().find(|told| is_past(told)).cloned()
        }
        _ => None,
    };
    let goes_on = matches!(outcome, Outcome::Nothing(_) | Outcome::Later(_) | Outcome::Obstructed { .. });
    let is_there = |told: &UpdateTarget| result.active == Some(&told.version);
    status.told = told.filter(|told| goes_on && called_off.as_ref() != Some(told) && !is_there(told));
    if let Some(called_off) = called_off.filter(|target| !is_there(target)) {
        status.called_off = Some(called_off);
    }
}

fn add_failure(
    status: &mut UpdaterStatus,
    version: &Version,
    failure: &StepFailed,
    attempt: u64,
    at: &Moment,
) {
    // An interruption that was not the version's fault does not lengthen the delay of the next try.
    let is_blamed = |last: &UpdateFailure| match failed_step(last) {
        StoredWord::Known(step) => step.blames_the_version(),
        StoredWord::Unknown(_) => true,
    };
    let last = status.last_failure.as_ref();
    let same = last.is_some_and(|last| last.version == *version && is_blamed(last));
    status.failures = if same { status.failures.saturating_add(1) } else { 1 };
    status.last_failure = Some(UpdateFailure {
        attempt,
        version: version.clone(),
        step: failure.step.as_str().into(),
        reason: failure.reason.clone(),
        at: at.wall,
        agent: failure.agent.as_deref().map(sent).map(Box::new),
    });
    status.failed_at = Some(at.since_boot.clone());
    status.agent_update_time_last = Some(at.wall);
}

/// Saves that a version was undone which had been switched to while no agent ran.
pub(crate) fn save_disproved(
    disk: &dyn Disk,
    layout: &Layout,
    disproved: &Disproved,
    at: &Moment,
) -> io::Result<()> {
    let Disproved { version, from, attempt, failure } = disproved;
    let mut status = last_status(disk, layout);
    if status.agent_version_installed.as_ref() == Some(version) {
        // It never worked, so it is not one to go back to.
        (status.agent_version_installed, status.agent_version_previous) = (Some(from.clone()), None);
        status.agent_edition_installed = status.agent_edition_previous.take();
    }
    status.unproved = false;
    add_failure(&mut status, version, failure, *attempt, at);
    save(disk, layout, &status)
}

/// The status that was saved last; the default if there is none that can be read.
pub fn last_status(disk: &dyn Disk, layout: &Layout) -> UpdaterStatus {
    let read = disk.read(&layout.status()).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Replaces the saved status.
pub(crate) fn save(disk: &dyn Disk, layout: &Layout, status: &UpdaterStatus) -> io::Result<()> {
    let bytes = serde_json::to_vec_pretty(status).map_err(io::Error::other)?;
    write_durably(disk, &layout.status(), &bytes, 0o644)
}

/// The step of a stored failure. A word of a newer release stays in the status as it is.
pub(crate) fn failed_step(failure: &UpdateFailure) -> StoredWord<FailedStep> {
    match failure.step.parse() {
        Ok(step) => StoredWord::Known(step),
        Err(_) => StoredWord::Unknown(Box::new(failure.step.as_str().into())),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use refit_types::BootMoment;

    use super::*;
    use crate::{Profile, RealDisk};

    fn at_the_epoch() -> Moment {
        let since_boot = BootMoment { boot_id: "a".into(), seconds: 7 };
        Moment { wall: Timestamp::UNIX_EPOCH, since_boot }
    }

    #[test]
    fn a_step_of_a_newer_release_survives_a_rewrite() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path(), &Profile::refit(), None);
        std::fs::create_dir_all(layout.versions()).unwrap();
        let stored = r#"{"failures": 2, "last_failure": {"attempt": 3, "version": "2.0.0", "step": "smoke",
            "reason": "it burns", "at": "2026-01-01T00:00:00Z"}}"#;
        std::fs::write(layout.status(), stored).unwrap();
        let before = last_status(&RealDisk, &layout);
        let step = failed_step(before.last_failure.as_ref().unwrap());
        assert_eq!(step, StoredWord::Unknown(Box::new("smoke".into())));
        let config = Config { enabled: true, ..Config::default() };
        let result = CommandResult {
            config: &config,
            answer: None,
            active: None,
            at: at_the_epoch(),
            unproved: false,
            woken_for: None,
        };
        let after = next_status(before.clone(), &result, &Outcome::Nothing(String::new()));
        assert_ne!(after, before);
        save(&RealDisk, &layout, &after).unwrap();
        let written: serde_json::Value =
            serde_json::from_slice(&std::fs::read(layout.status()).unwrap()).unwrap();
        assert_eq!((&written["last_failure"]["step"], &written["failures"]), (&"smoke".into(), &2.into()));
    }

    #[test]
    fn a_hold_and_an_attempt_that_was_called_off_say_what_they_are_about() {
        let answer = Answer {
            version: "2.0.0".parse().unwrap(),
            auto_update: true,
            attempt: 7,
            jitter_seconds: 0,
            edition: refit_types::Edition::Oss,
            withheld: None,
        };
        let result = CommandResult {
            config: &Config::default(),
            answer: Some(&answer),
            active: None,
            at: at_the_epoch(),
            unproved: false,
            woken_for: None,
        };
        let target = Some(UpdateTarget { version: "2.0.0".parse().unwrap(), attempt: 7 });
        let held = next_status(UpdaterStatus::default(), &result, &Outcome::Held("no backup".into()));
        assert_eq!((held.held.as_deref(), &held.held_target), (Some("no backup"), &target));
        let called_off = Outcome::CalledOff { version: "2.0.0".parse().unwrap() };
        let after = next_status(held, &result, &called_off);
        assert_eq!((after.held, after.held_target, &after.called_off), (None, None, &target));
        let later = next_status(
            UpdaterStatus { called_off: after.called_off, ..UpdaterStatus::default() },
            &result,
            &Outcome::Nothing(String::new()),
        );
        assert_eq!(later.called_off, target, "a later command that does nothing does not hide it");
    }

    #[test]
    fn a_failed_step_is_stored_by_its_word() {
        let result = CommandResult {
            config: &Config::default(),
            answer: None,
            active: None,
            at: at_the_epoch(),
            unproved: false,
            woken_for: None,
        };
        let failure = FailedStep::Health.failure("no agent answers");
        let undone = Outcome::Undone { version: "2.0.0".parse().unwrap(), failure };
        let status = next_status(UpdaterStatus::default(), &result, &undone);
        assert_eq!(status.failed_at, Some(at_the_epoch().since_boot));
        let stored = status.last_failure.unwrap();
        assert_eq!(stored.step, "health");
        assert_eq!(failed_step(&stored), StoredWord::Known(FailedStep::Health));
    }
}
