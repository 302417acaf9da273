use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fault::{Faults, Fields};
use crate::{Channel, ChannelName};

/// What kinds of things operators keep in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A named pointer to a version.
    Channel,
}

/// A word that names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a kind of resource; expected {}", Kind::names())]
pub struct UnknownKind {
    found: String,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 1] = [Kind::Channel];

    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
        }
    }

    /// The version of the document form that this binary writes.
    pub fn document_version(self) -> &'static str {
        match self {
            Self::Channel => "v2",
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
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Channel(channel) => channel.name.as_str(),
        }
    }

    /// The document that says all of it.
    pub fn document(&self, revision: Option<String>) -> Document {
        let (description, spec) = match self {
            Self::Channel(channel) => (channel.description.clone(), channel.spec()),
        };
        let kind = self.kind();
        Document {
            kind: kind.name().into(),
            version: kind.document_version().into(),
            metadata: Metadata { name: self.name().into(), description, revision },
            spec,
        }
    }

    /// Reads a document, and the revision that it was edited from; every fault is reported at once.
    pub fn from_document(document: Value) -> Result<(Self, Option<String>), Faults> {
        let mut faults = Faults::default();
        let mut fields = Fields::of("", document, &mut faults);
        let kind = fields.required_text("kind", Kind::from_str);
        let _checked = fields.text("version", |text| match kind {
            Some(kind) if text != kind.document_version() => {
                Err(format!("{text:?} is not a version of {kind}; expected {}", kind.document_version()))
            }
            _ => Ok(()),
        });
        let metadata = fields.take("metadata").unwrap_or_else(|| json!({}));
        let spec = fields.take("spec").unwrap_or_else(|| json!({}));
        fields.end();

        let mut fields = Fields::of("metadata", metadata, &mut faults);
        let name = fields.required_text("name", ChannelName::from_str);
        let description = fields.text("description", any_text).unwrap_or_default();
        let revision = fields.text("revision", any_text);
        fields.end();

        let resource = match kind {
            Some(Kind::Channel) => {
                Channel::from_parts(name, description, spec, &mut faults).map(Resource::Channel)
            }
            None => None,
        };
        faults.or(resource).map(|resource| (resource, revision))
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
        assert!(unknown.to_string().contains(r#"kind: "node" is not a kind of resource; expected channel"#));
    }
}
