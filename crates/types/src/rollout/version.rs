//! The kind `autoupdate_version`: what the agents of the cluster should run, and how urgent that is.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Version;
use crate::resource_kind::{Column, Detail, Editors, Header, KindInfo, Naming, ResourceKind};
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

impl ResourceKind for AutoupdateVersion {
    const INFO: KindInfo = KindInfo {
        name: "autoupdate_version",
        document_version: "v1",
        naming: Naming::Singleton("autoupdate-version"),
        editors: Editors::Versions,
        drives_rollouts: true,
        columns: &[
            Column::text("AGENT VERSION", "/spec/agent_version"),
            Column::text("SCHEDULE", "/spec/agent_version_schedule"),
            Column::text("REVISION", "/metadata/revision"),
            Column::text("DESCRIPTION", "/metadata/description"),
        ],
        draft: Some(|| json!({ "agent_version": "", "agent_version_schedule": "regular" })),
    };

    fn description(&self) -> &str {
        &self.description
    }

    fn spec(&self, _: Detail) -> Value {
        json!({
            "agent_version": self.agent_version.to_string(),
            "agent_version_schedule": self.agent_version_schedule.as_str(),
        })
    }

    fn from_parts(header: Header, spec: Value, errors: &mut ValidationErrors) -> Option<Self> {
        let mut fields = Fields::of("spec", spec, errors);
        let version = fields.required_text("agent_version", Version::from_str);
        let schedule = fields.text("agent_version_schedule", Schedule::from_str);
        fields.end();
        let agent_version_schedule = schedule.unwrap_or(Schedule::Regular);
        Some(Self { description: header.description, agent_version: version?, agent_version_schedule })
    }

    fn needs_consent_to_replace(&self, present: &Self) -> Option<String> {
        let (wanted, present) = (&self.agent_version, &present.agent_version);
        (wanted.major() < present.major()).then(|| {
            format!(
                "spec.agent_version: {wanted} is of a lower major version than the present {present}; agents may \
                 not be able to read what newer ones stored; repeat with --allow-major-downgrade if that is meant"
            )
        })
    }
}
