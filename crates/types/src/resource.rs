use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::validation::{Fields, ValidationErrors};
use crate::{AutoupdateVersion, Channel, ChannelName, ClusterMaintenanceConfig};

/// What kinds of things operators keep in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A named pointer to a version.
    Channel,
    /// Whether, when and in which order agents are updated.
    ClusterMaintenanceConfig,
    /// What the agents of the cluster should run.
    AutoupdateVersion,
}

/// A word that names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a kind of resource; expected {}", Kind::names())]
pub struct UnknownKind {
    found: String,
}

const LONGEST_DESCRIPTION: usize = 256;

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::ClusterMaintenanceConfig, Kind::AutoupdateVersion];

    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::ClusterMaintenanceConfig => "cluster_maintenance_config",
            Self::AutoupdateVersion => "autoupdate_version",
        }
    }

    /// The version of the document form that this binary writes.
    pub fn document_version(self) -> &'static str {
        match self {
            Self::Channel => "v2",
            Self::ClusterMaintenanceConfig | Self::AutoupdateVersion => "v1",
        }
    }

    /// The name of the only one there can be, for kinds of which a cluster has one.
    pub fn singleton(self) -> Option<&'static str> {
        match self {
            Self::Channel => None,
            Self::ClusterMaintenanceConfig => Some("cluster-maintenance-config"),
            Self::AutoupdateVersion => Some("autoupdate-version"),
        }
    }

    /// The name that a resource of this kind has when it is called so; a singleton need not be called
    /// anything.
    pub fn named(self, name: &str) -> Result<&str, String> {
        match self.singleton() {
            Some(only) if name.is_empty() || name == only => Ok(only),
            Some(only) => {
                let name: String = name.chars().take(80).collect();
                Err(format!("{name:?} is not the name of the {self}; expected {only}, or none"))
            }
            None => ChannelName::from_str(name).map(|_| name).map_err(|error| error.to_string()),
        }
    }

    fn names() -> String {
        Self::ALL.map(Kind::name).join(", ")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// The plural is accepted too, because people type `get channels`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let singular = text.strip_suffix('s').unwrap_or(text);
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text || kind.name() == singular);
        found.ok_or_else(|| UnknownKind { found: text.chars().take(80).collect() })
    }
}

/// A resource of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// A named pointer to a version.
    Channel(Channel),
    /// Whether, when and in which order agents are updated.
    ClusterMaintenanceConfig(Box<ClusterMaintenanceConfig>),
    /// What the agents of the cluster should run.
    AutoupdateVersion(AutoupdateVersion),
}

/// How much of a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What differs from the defaults.
    Compact,
    /// Every field.
    Full,
}

/// A resource as operators read and write it, in YAML or JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Which kind of resource.
    pub kind: String,
    /// Which form of that kind.
    pub version: String,
    /// What all kinds have.
    pub metadata: Metadata,
    /// What only this kind has.
    pub spec: Value,
}

/// What every resource carries besides its spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Unique within the kind.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When it was last written; an update that names it is refused if somebody wrote since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

impl Resource {
    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Channel(_) => Kind::Channel,
            Self::ClusterMaintenanceConfig(_) => Kind::ClusterMaintenanceConfig,
            Self::AutoupdateVersion(_) => Kind::AutoupdateVersion,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Channel(channel) => channel.name.as_str(),
            _ => self.kind().singleton().unwrap_or_default(),
        }
    }

    /// The document that says all of it, without what would be the same if it were left out.
    pub fn document(&self, revision: Option<String>) -> Document {
        self.written(revision, Detail::Compact)
    }

    /// The document with every field, for whoever wants to see what holds where nothing was said.
    pub fn full_document(&self, revision: Option<String>) -> Document {
        self.written(revision, Detail::Full)
    }

    fn written(&self, revision: Option<String>, detail: Detail) -> Document {
        let (description, spec) = match self {
            Self::Channel(channel) => (&channel.description, channel.spec()),
            Self::ClusterMaintenanceConfig(config) => (&config.description, config.spec(detail)),
            Self::AutoupdateVersion(version) => (&version.description, version.spec()),
        };
        let kind = self.kind();
        Document {
            kind: kind.name().into(),
            version: kind.document_version().into(),
            metadata: Metadata { name: self.name().into(), description: description.clone(), revision },
            spec,
        }
    }

    /// Reads a document, and the revision that it was edited from; every fault is reported at once.
    pub fn from_document(document: Value) -> Result<(Self, Option<String>), ValidationErrors> {
        let mut faults = ValidationErrors::default();
        let mut fields = Fields::of("", document, &mut faults);
        let kind = fields.required_text("kind", Kind::from_str);
        let _checked = fields.text("version", |text| match kind {
            Some(kind) if text != kind.document_version() => {
                let shown: String = text.chars().take(80).collect();
                Err(format!("{shown:?} is not a version of {kind}; expected {}", kind.document_version()))
            }
            _ => Ok(()),
        });
        let metadata = fields.take("metadata").unwrap_or_else(|| json!({}));
        let spec = fields.take("spec").unwrap_or_else(|| json!({}));
        fields.end();

        let mut fields = Fields::of("metadata", metadata, &mut faults);
        let name = match kind.filter(|kind| kind.singleton().is_some()) {
            Some(kind) => {
                let _checked = fields.text("name", |name| kind.named(name).map(|_| ()));
                None
            }
            None => fields.required_text("name", ChannelName::from_str),
        };
        let description = fields.text("description", described).unwrap_or_default();
        let revision = fields.text("revision", any_text);
        fields.end();

        let resource = match kind {
            Some(Kind::Channel) => {
                Channel::from_parts(name, description, spec, &mut faults).map(Resource::Channel)
            }
            Some(Kind::ClusterMaintenanceConfig) => {
                Some(ClusterMaintenanceConfig::from_parts(description, spec, &mut faults).into())
            }
            Some(Kind::AutoupdateVersion) => {
                AutoupdateVersion::from_parts(description, spec, &mut faults).map(Resource::AutoupdateVersion)
            }
            None => None,
        };
        faults.or(resource).map(|resource| (resource, revision))
    }
}

impl From<Channel> for Resource {
    fn from(channel: Channel) -> Self {
        Self::Channel(channel)
    }
}

impl From<ClusterMaintenanceConfig> for Resource {
    fn from(config: ClusterMaintenanceConfig) -> Self {
        Self::ClusterMaintenanceConfig(Box::new(config))
    }
}

impl From<AutoupdateVersion> for Resource {
    fn from(version: AutoupdateVersion) -> Self {
        Self::AutoupdateVersion(version)
    }
}

impl TryFrom<Resource> for Channel {
    type Error = Kind;

    fn try_from(resource: Resource) -> Result<Self, Kind> {
        match resource {
            Resource::Channel(channel) => Ok(channel),
            other => Err(other.kind()),
        }
    }
}

impl TryFrom<Resource> for ClusterMaintenanceConfig {
    type Error = Kind;

    fn try_from(resource: Resource) -> Result<Self, Kind> {
        match resource {
            Resource::ClusterMaintenanceConfig(config) => Ok(*config),
            other => Err(other.kind()),
        }
    }
}

impl TryFrom<Resource> for AutoupdateVersion {
    type Error = Kind;

    fn try_from(resource: Resource) -> Result<Self, Kind> {
        match resource {
            Resource::AutoupdateVersion(version) => Ok(version),
            other => Err(other.kind()),
        }
    }
}

fn described(text: &str) -> Result<String, String> {
    match text.chars().count() > LONGEST_DESCRIPTION {
        true => Err(format!("is longer than the {LONGEST_DESCRIPTION} characters that are allowed")),
        false => Ok(text.to_owned()),
    }
}

fn any_text(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_comes_back_as_it_was_written() {
        let document = json!({
            "kind": "channel", "version": "v2",
            "metadata": { "name": "stable/cloud", "description": "what most run", "revision": "7" },
            "spec": { "version": "15.1.1", "critical": true },
        });
        let (resource, revision) = Resource::from_document(document.clone()).unwrap();
        assert_eq!(serde_json::to_value(resource.document(revision)).unwrap(), document);
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_place() {
        let document = json!({
            "kind": "channel", "version": "v9", "extra": 1,
            "metadata": { "name": "no good", "colour": "red" },
            "spec": { "version": 15, "critical": "yes", "speed": null },
        });
        let faults = Resource::from_document(document).unwrap_err();
        let lines: Vec<String> = faults.list().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"version: "v9" is not a version of channel; expected v2"#,
                "extra: is not a known field; expected one of kind, version, metadata, spec",
                r#"metadata.name: "no good" is not a channel name; expected parts of letters, digits, '.', '_' and '-' that start with a letter or digit, joined by '/'"#,
                "metadata.colour: is not a known field; expected one of name, description, revision",
                "spec.version: expected a text, found 15",
                r#"spec.critical: expected true or false, found "yes""#,
                "spec.speed: is not a known field; expected one of version, critical",
            ]
        );
        let nothing = Resource::from_document(json!([])).unwrap_err();
        assert!(nothing.to_string().starts_with("the document: expected a map, found []"), "{nothing}");
        let unknown = Resource::from_document(json!({"kind": "node"})).unwrap_err();
        assert!(unknown.to_string().contains(r#"kind: "node" is not a kind of resource; expected channel, cluster_maintenance_config, autoupdate_version"#));
    }
}
