//! The status file that the updater writes and the agent sends with its heartbeats.

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
    /// How often in a row the version of the last failure has failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The last attempt that was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<UpdateFailure>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl UpdaterStatus {
    /// The size limit of the file. Agents read no more, and servers must accept as much: with a lower limit there, a
    /// long status would make the server refuse the agent's heartbeats.
    pub const MAX_BYTES: usize = 64 * 1024;
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
}
