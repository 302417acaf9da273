//! Resources as documents: what operators read and write, in YAML or JSON. Knows nothing of single kinds; those describe
//! themselves by [`crate::ResourceKind`].

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::resource_kind::{Detail, Header, NameRule, Naming};
use crate::validation::{Fields, ValidationErrors};
use crate::{Kind, Resource};

const LONGEST_DESCRIPTION: usize = 256;

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
    /// The document that says all of it, without what would be the same if it were left out.
    pub fn document(&self, revision: Option<String>) -> Document {
        self.written(revision, Detail::Compact)
    }

    /// The document with every field, for whoever wants to see what holds where nothing was said.
    pub fn full_document(&self, revision: Option<String>) -> Document {
        self.written(revision, Detail::Full)
    }

    fn written(&self, revision: Option<String>, detail: Detail) -> Document {
        let kind = self.kind();
        let (name, description) = (self.name().into(), self.description().into());
        Document {
            kind: kind.name().into(),
            version: kind.document_version().into(),
            metadata: Metadata { name, description, revision },
            spec: self.spec(detail),
        }
    }

    /// Reads a document, and the revision that it was edited from; every error is reported at once.
    pub fn from_document(document: Value) -> Result<(Self, Option<String>), ValidationErrors> {
        read(document, |naming| match naming {
            Naming::Named { stored, .. } => Some(stored),
            Naming::Singleton(_) => None,
        })
    }

    /// Like [`Resource::from_document`], for a resource that may not exist yet: its name must not be one that is
    /// refused to new resources.
    pub fn from_new_document(document: Value) -> Result<(Self, Option<String>), ValidationErrors> {
        read(document, |naming| match naming {
            Naming::Named { new, .. } => Some(new),
            Naming::Singleton(_) => None,
        })
    }
}

/// Reads a document; `rule_of` says how the names of a kind are checked, unless there is only one.
fn read(
    document: Value,
    rule_of: fn(Naming) -> Option<NameRule>,
) -> Result<(Resource, Option<String>), ValidationErrors> {
    let mut errors = ValidationErrors::default();
    let mut fields = Fields::of("", document, &mut errors);
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

    let mut fields = Fields::of("metadata", metadata, &mut errors);
    let name = match kind.map(|kind| (kind, rule_of(kind.info().naming))) {
        Some((_, Some(rule))) => fields.required_text("name", |name| rule(name).map(|()| name.to_owned())),
        Some((kind, None)) => fields.text("name", |name| kind.named(name).map(str::to_owned)),
        None => fields.required_text("name", any_text),
    };
    let description = fields.text("description", described).unwrap_or_default();
    let revision = fields.text("revision", any_text);
    fields.end();

    let resource = kind.and_then(|kind| kind.resource_from(Header { name, description }, spec, &mut errors));
    errors.or(resource).map(|resource| (resource, revision))
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
    fn every_error_is_reported_at_once_with_its_place() {
        let document = json!({
            "kind": "channel", "version": "v9", "extra": 1,
            "metadata": { "name": "no good", "colour": "red" },
            "spec": { "version": 15, "critical": "yes", "speed": null },
        });
        let errors = Resource::from_document(document).unwrap_err();
        let lines: Vec<String> = errors.list().iter().map(ToString::to_string).collect();
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
