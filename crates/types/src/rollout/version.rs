//! The resource that chooses the version to roll out, and the schedules by which it can be rolled out.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Version;
use crate::text_enum::text_enum;
use crate::validation::{Fields, ValidationErrors};

/// How urgent a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Schedule {
    /// In the groups and windows for every day.
    Regular,
    /// In the groups and windows for urgent versions.
    Critical,
    /// Everywhere at once: groups and windows do not count.
    Immediate,
}

text_enum!(Schedule, "a schedule", {
    Regular => "regular",
    Critical => "critical",
    Immediate => "immediate",
});

/// The resource `autoupdate_version`: what the agents of the cluster should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoupdateVersion {
    /// What it is for, in the operator's words.
    pub description: String,
    /// The version that is advertised.
    pub agent_version: Version,
    /// How it is rolled out.
    pub agent_version_schedule: Schedule,
}

impl AutoupdateVersion {
    /// The `spec` of its document.
    pub(crate) fn spec(&self) -> Value {
        json!({
            "agent_version": self.agent_version.to_string(),
            "agent_version_schedule": self.agent_version_schedule.as_str(),
        })
    }

    pub(crate) fn from_parts(
        description: String,
        spec: Value,
        errors: &mut ValidationErrors,
    ) -> Option<Self> {
        let mut fields = Fields::of("spec", spec, errors);
        let version = fields.required_text("agent_version", Version::from_str);
        let schedule = fields.text("agent_version_schedule", Schedule::from_str);
        fields.end();
        let agent_version_schedule = schedule.unwrap_or(Schedule::Regular);
        Some(Self { description, agent_version: version?, agent_version_schedule })
    }
}
