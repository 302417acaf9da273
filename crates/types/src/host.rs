//! The identity of a host and the enums that describe its agent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::text_enum::text_enum;

/// Names a host for as long as it lives, through restarts, upgrades and new certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostId(Uuid);

/// A text that is no host id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a host UUID; expected something like 6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55")]
pub struct NotAHostId {
    found: String,
}

impl HostId {
    /// A host of that UUID.
    pub fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID, for compact keys.
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl FromStr for HostId {
    type Err = NotAHostId;

    /// The hyphenated form only, so that one host has one spelling (but for upper case).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || NotAHostId { found: text.chars().take(80).collect() };
        if text.len() != 36 {
            return Err(refused());
        }
        Uuid::try_parse(text).map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl TryFrom<String> for HostId {
    type Error = NotAHostId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostId> for String {
    fn from(host: HostId) -> Self {
        host.to_string()
    }
}

/// What an agent does on its host. Its token says which of these it may have, and it has an identity
/// for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AgentRole {
    /// The host itself.
    Node,
    /// A Kubernetes cluster.
    Kube,
    /// Applications.
    App,
    /// Databases.
    Db,
    /// Finding other resources.
    Discovery,
}

text_enum!(AgentRole, "an agent's role", {
    Node => "node",
    Kube => "kube",
    App => "app",
    Db => "db",
    Discovery => "discovery",
});

/// Which build of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Edition {
    /// The free one.
    Oss,
    /// With a licence.
    Enterprise,
    /// With a licence, and cryptography that is certified.
    EnterpriseFips,
}

text_enum!(Edition, "an edition", {
    Oss => "oss",
    Enterprise => "enterprise",
    EnterpriseFips => "enterprise-fips",
});

/// What keeps the agent on its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UpgraderKind {
    /// Nothing.
    None,
    /// `refit-update`.
    Binary,
    /// `refit-upgrade`, by the system's packages.
    Unit,
    /// `refit-kube-updater`.
    Kube,
}

text_enum!(UpgraderKind, "a kind of upgrader", {
    None => "none",
    Binary => "binary",
    Unit => "unit",
    Kube => "kube",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        let id: HostId = "6F1B0B5E-0C5A-4BBD-9D7E-2F1F0F6F3A55".parse().unwrap();
        assert_eq!(id.to_string(), "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55");
        for bad in ["", "6f1b0b5e0c5a4bbd9d7e2f1f0f6f3a55", "{6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55}", "x"] {
            assert!(bad.parse::<HostId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn words_say_what_is_allowed() {
        assert_eq!("kube".parse::<AgentRole>().unwrap(), AgentRole::Kube);
        let refused = "root".parse::<AgentRole>().unwrap_err().to_string();
        assert_eq!(refused, r#""root" is not an agent's role; expected node, kube, app, db, discovery"#);
        assert_eq!(serde_json::to_string(&Edition::EnterpriseFips).unwrap(), r#""enterprise-fips""#);
    }
}
