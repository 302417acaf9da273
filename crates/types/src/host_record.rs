//! The record of a host, and what its agent reports.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    AgentRole, Edition, HostId, Labels, Platform, StoredWord, UnknownFields, UpdaterStatus, Upgrade,
    UpgraderKind, Version, keep_unknown_fields,
};

/// What the cluster knows of one host, stored for as long as the host belongs to it. What a newer release
/// adds to it survives a rewrite: unknown fields at every depth, and unknown words that only describe
/// ([`StoredWord`]). An unknown schedule or outcome of its upgrade makes the record unreadable instead: the
/// limits of a rollout depend on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct HostRecord {
    /// Which host.
    pub host_id: HostId,
    /// What it calls itself.
    pub hostname: Box<str>,
    /// What its agent does there.
    pub roles: Vec<StoredWord<AgentRole>>,
    /// When it joined.
    pub first_seen: Timestamp,
    /// When it last sent a heartbeat; up to one write interval behind.
    pub last_seen: Timestamp,
    /// Its last report; none before its first heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// The server that it is connected to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Box<str>>,
    /// When the certificate expires that it last connected with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_expires: Option<Timestamp>,
    /// When two processes last reported as this host, if they did lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_at: Option<Timestamp>,
    /// Its progress in the current rollout, once it is a member of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Box<Upgrade>>,
    /// Its last updates, the newest last: few, because every host has them in memory.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub past: Box<[PastUpdate]>,
    /// Unknown fields of a newer release, at every depth except in `past` and `upgrade`, which keep their own.
    #[serde(skip)]
    pub unknown: UnknownFields,
}

/// A finished update of a host, as the host reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct PastUpdate {
    /// When it finished.
    pub at: Timestamp,
    /// What ran before.
    pub from: Version,
    /// What was to run.
    pub to: Version,
    /// The step that failed, and why; none if the update succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<str>>,
    /// What a newer release wrote.
    #[serde(skip)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(HostRecord, PastUpdate);

/// What an agent reports about itself and its host in a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The agent's version.
    pub version: Version,
    /// The agent's edition.
    pub edition: StoredWord<Edition>,
    /// Labels of the host as a resource.
    pub node_labels: Labels,
    /// Labels of the agent.
    pub instance_labels: Labels,
    /// What keeps the agent on its version.
    pub upgrader: StoredWord<UpgraderKind>,
    /// The updater's last status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updater: Option<Box<UpdaterStatus>>,
    /// The process that reported.
    pub session: Session,
    /// The rotation that the agent has carried out.
    pub rotation: RotationMark,
    /// The attempt that the agent has woken its updater for; 0 for none.
    #[serde(default)]
    pub hint_acknowledged: u64,
    /// The system that it runs on; none of agents that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Box<Platform>>,
}

/// One run of an agent: distinguishes two processes that report with the same host UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Drawn when the process started.
    pub id: Uuid,
    /// When that was.
    pub started_at: Timestamp,
}

/// A rotation of the authorities, and a phase of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RotationMark {
    /// Empty when there has been none.
    pub id: Box<str>,
    /// The phase's word.
    pub phase: Box<str>,
}

impl HostRecord {
    /// A host that has just joined.
    pub fn joined(host_id: HostId, hostname: &str, roles: Vec<AgentRole>, now: Timestamp) -> Self {
        Self {
            host_id,
            hostname: hostname.into(),
            roles: roles.into_iter().map(StoredWord::Known).collect(),
            first_seen: now,
            last_seen: now,
            report: None,
            server: None,
            identity_expires: None,
            duplicate_at: None,
            upgrade: None,
            past: Box::default(),
            unknown: UnknownFields::default(),
        }
    }

    /// Whether the search text occurs in its name, UUID, version, edition or labels.
    pub fn matches(&self, search: &str) -> bool {
        let search = search.to_ascii_lowercase();
        let holds = |text: &str| text.to_ascii_lowercase().contains(&search);
        let label = |labels: &Labels| labels.iter().any(|(name, value)| holds(name) || holds(value));
        holds(&self.hostname)
            || holds(&self.host_id.to_string())
            || self.report.as_ref().is_some_and(|report| {
                holds(&report.version.to_string())
                    || holds(report.edition.as_str())
                    || label(&report.node_labels)
                    || label(&report.instance_labels)
            })
    }

    /// Whether each of these labels is one of the host's or of the agent's.
    pub fn has_labels(&self, wanted: &Labels) -> bool {
        let Some(report) = &self.report else { return wanted.is_empty() };
        wanted.iter().all(|(name, value)| {
            report.instance_labels.get(name) == Some(value) || report.node_labels.get(name) == Some(value)
        })
    }
}
