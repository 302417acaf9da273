//! The status file that the updater writes and the agent sends with its heartbeats.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Edition, StoredWord, Version};

/// The status of the host updater: `versions/status.json`. The updater writes it and the agent sends it with its
/// heartbeats. The two may have different versions, so unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdaterStatus {
    /// The installed and active version.
    pub agent_version_installed: Option<Version>,
    /// The version that the cluster asks for.
    pub agent_version_desired: Option<Version>,
    /// The version that was active before.
    pub agent_version_previous: Option<Version>,
    /// The edition of what is active.
    pub agent_edition_installed: Option<StoredWord<Edition>>,
    /// The edition that the cluster wants.
    pub agent_edition_desired: Option<StoredWord<Edition>>,
    /// The edition of what was active before.
    pub agent_edition_previous: Option<StoredWord<Edition>>,
    /// When the last update ended.
    pub agent_update_time_last: Option<Timestamp>,
    /// The seconds over which updates are spread.
    pub agent_update_time_jitter: u32,
    /// Whether the updater may act at all.
    pub agent_updates_enabled: bool,
    /// The version to stay on, whatever the cluster wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_version: Option<Version>,
    /// Why the updater does not do what the cluster wants, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// What is held; none if nothing is. Updaters before there were holds of one version leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_target: Option<UpdateTarget>,
    /// What was last called off before anything was switched, because the cluster no longer asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_off: Option<UpdateTarget>,
    /// What the cluster has told this host to do, if that is not known to have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<UpdateTarget>,
    /// The attempt that the agent last woke the updater for, once the control plane has answered for it.
    #[serde(skip_serializing_if = "is_zero_attempt")]
    pub woken_for: u64,
    /// Whether the installed version was switched to while no agent ran, and has not proved since that it works.
    #[serde(skip_serializing_if = "is_false")]
    pub unproved: bool,
    /// How often in a row the version of the last failure has failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The last version that was tried and failed. Releases before `obstacle` also told of obstacles here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<UpdateFailure>,
    /// What keeps the update from beginning. Not a failure of the version: nothing was switched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<UpdateObstacle>,
    /// When the last failure was, by a clock that nobody can set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<BootMoment>,
    /// When the obstacle was last met, by that clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstructed_at: Option<BootMoment>,
}

/// A moment by the clock that counts from the host's boot. Moments of different boots cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootMoment {
    /// The kernel's name of the boot.
    pub boot_id: String,
    /// Seconds since then, with the time that the host was suspended.
    pub seconds: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_zero_attempt(attempt: &u64) -> bool {
    *attempt == 0
}

impl UpdaterStatus {
    /// The size limit of the file. Agents read no more, and servers must accept as much: with a lower limit there, a
    /// long status would make the server refuse the agent's heartbeats.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// The last failure that a version is to blame for. An updater of a release before `obstacle` tells of a download
    /// that failed as if the version had been tried.
    pub fn version_failure(&self) -> Option<&UpdateFailure> {
        self.last_failure.as_ref().filter(|failure| !failure.is_before_the_switch())
    }

    /// The attempt that the agent has woken the updater for, if that is news. Numbers are compared and not times: a clock
    /// may be set.
    pub fn new_wake(&self, attempt: u64) -> Option<u64> {
        Some(attempt).filter(|attempt| *attempt > 0 && *attempt != self.woken_for)
    }

    /// What keeps the update from beginning, told by an updater of this release or of one before.
    pub fn current_obstacle(&self) -> Option<UpdateObstacle> {
        self.obstacle.clone().or_else(|| {
            let failure = self.last_failure.as_ref().filter(|failure| failure.is_before_the_switch())?;
            Some(UpdateObstacle {
                attempt: failure.attempt,
                version: Some(failure.version.clone()),
                step: failure.step.clone(),
                reason: failure.reason.clone(),
                at: failure.at,
                tries: self.failures.max(1),
                next_try: None,
            })
        })
    }
}

/// What an updater was told to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateTarget {
    /// The version to go to.
    pub version: Version,
    /// The attempt, as the control plane counted it; 0 where attempts are not counted.
    #[serde(default)]
    pub attempt: u64,
}

/// An update that was tried and rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateFailure {
    /// The attempt, as the control plane counted it.
    pub attempt: u64,
    /// The version that was tried.
    pub version: Version,
    /// The step that failed.
    pub step: String,
    /// Why, in words.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// What is known of the agent of that version; nothing if none was started, or its service manager says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<FailedAgent>>,
}

/// The agent of a version that failed, as its service manager saw it. Masked and bounded by the updater.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedAgent {
    /// How it ended, in words: its exit status or signal. Nothing if it was still running when it was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// When the updater first saw that it had ended, by the host's wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_dead_at: Option<Timestamp>,
    /// The last lines that it wrote, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

impl UpdateFailure {
    /// Whether the step is one of those that come before anything is switched and that are no test of the version. Steps
    /// that also occur later (`link`, `service`, `journal`) are not among them.
    fn is_before_the_switch(&self) -> bool {
        matches!(self.step.as_str(), "find" | "download" | "backup")
    }
}

/// What keeps an update from beginning: a download, the disk, the control plane. The updater tries again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateObstacle {
    /// The attempt, as the control plane counts it.
    pub attempt: u64,
    /// The version that is due; nothing if the control plane could not be asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The step that cannot be done.
    pub step: String,
    /// Why, in words.
    pub reason: String,
    /// When it was last tried.
    pub at: Timestamp,
    /// How often it was tried in this attempt.
    pub tries: u32,
    /// When it is tried again, if it is still due then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

impl fmt::Display for UpdateObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.tries == 1 { "once".into() } else { format!("{} times", self.tries) };
        write!(f, "could not begin at {}: {} (tried {times})", self.step, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_another_version_is_read() {
        let text = r#"{
            "agent_version_installed": "15.1.1", "agent_edition_installed": "enterprise",
            "agent_update_time_last": "2020-12-10T16:00:00+00:00", "agent_update_time_jitter": 600,
            "agent_updates_enabled": true, "something_new": [1, 2]
        }"#;
        let status: UpdaterStatus = serde_json::from_str(text).unwrap();
        assert_eq!(status.agent_version_installed.as_ref().unwrap().to_string(), "15.1.1");
        assert_eq!((status.agent_update_time_jitter, status.agent_updates_enabled), (600, true));
        let again: UpdaterStatus = serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap();
        assert_eq!(again, status);
    }
    #[test]
    fn what_comes_before_the_switch_is_no_failure_of_the_version_whoever_tells_of_it() {
        let told = |step: &str| UpdaterStatus {
            failures: 2,
            last_failure: Some(UpdateFailure {
                attempt: 3,
                version: "2.0.0".parse().unwrap(),
                step: step.into(),
                reason: "404 Not Found".into(),
                at: Timestamp::UNIX_EPOCH,
                agent: None,
            }),
            ..UpdaterStatus::default()
        };
        for step in ["find", "download", "backup"] {
            let status = told(step);
            assert_eq!(status.version_failure(), None, "{step}");
            let obstacle = status.current_obstacle().unwrap();
            assert_eq!((obstacle.attempt, obstacle.tries), (3, 2));
            let text = format!("could not begin at {step}: 404 Not Found (tried 2 times)");
            assert_eq!(obstacle.to_string(), text);
        }
        for step in
            ["validate", "link", "service", "journal", "switch", "restart", "health", "of a later one"]
        {
            assert!(told(step).version_failure().is_some(), "{step}");
            assert_eq!(told(step).current_obstacle(), None, "{step}");
        }
    }
}
