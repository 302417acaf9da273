//! `updates.yaml`: what the updater may do on this host. Written by commands of an operator, read by every command.

use std::io;
use std::path::Path;

use refit_types::{ConfigError, Version};
use serde_json::{Map, Value, json};

use crate::disk::{Disk, write_durably};

/// The configuration. Fields that this release does not know survive a rewrite.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// The control plane.
    pub proxy: Option<String>,
    /// Whether `update` may change anything.
    pub enabled: bool,
    /// A copy of the active version, for people; the pointer decides.
    pub active_version: Option<Version>,
    /// The version to stay on, regardless of the cluster.
    pub pinned_version: Option<Version>,
    /// The pin of the cluster's CA, beside the system's authorities and the agent's trust file.
    pub ca_pin: Option<String>,
    /// Where archives come from, if not from the control plane.
    pub base_url: Option<String>,
    /// More places of the same archives, tried in this order after `base_url`. A field of its own, because releases
    /// before it read one text there.
    pub mirrors: Vec<String>,
    pub(crate) rest: Map<String, Value>,
}

const KIND: &str = "agent_versions";

impl Config {
    /// The places of archives, in the order in which they are tried.
    pub fn base_urls(&self) -> Vec<String> {
        self.base_url.iter().chain(&self.mirrors).cloned().collect()
    }

    /// The stored configuration; the default if there is none.
    pub fn load(disk: &dyn Disk, path: &Path) -> Result<Self, ConfigError> {
        let bytes = match disk.read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(ConfigError::Unreadable { path: path.into(), source }),
        };
        Self::parse(&bytes).map_err(|error| {
            let error = format!("{error}; correct it, or remove it and run `enable` again");
            ConfigError::Invalid { path: path.into(), error }
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())?;
        let document: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(mut rest) = document else { return Err("expected a map".into()) };
        if let Some(kind) = rest.get("kind").filter(|kind| kind.as_str() != Some(KIND)) {
            return Err(format!("kind: expected {KIND}, found {kind}"));
        }
        let mut spec = match rest.remove("spec") {
            Some(Value::Object(spec)) => spec,
            Some(other) => return Err(format!("spec: expected a map, found {other}")),
            None => Map::new(),
        };
        let config = Self {
            proxy: text_of(&mut spec, "proxy")?,
            enabled: match spec.remove("enabled") {
                Some(Value::Bool(enabled)) => enabled,
                None | Some(Value::Null) => false,
                Some(other) => return Err(format!("spec.enabled: expected true or false, found {other}")),
            },
            active_version: version_of(&mut spec, "active_version")?,
            pinned_version: version_of(&mut spec, "pinned_version")?,
            ca_pin: text_of(&mut spec, "ca_pin")?,
            base_url: text_of(&mut spec, "base_url")?,
            mirrors: texts_of(&mut spec, "mirrors")?,
            rest: {
                rest.insert("spec".into(), Value::Object(spec));
                rest
            },
        };
        Ok(config)
    }

    /// Stores it durably.
    pub fn store(&self, disk: &dyn Disk, path: &Path) -> Result<(), ConfigError> {
        let failed = |source| ConfigError::Unwritable { path: path.into(), source };
        let text = serde_saphyr::to_string(&self.document())
            .map_err(|error| failed(io::Error::other(error.to_string())))?;
        write_durably(disk, path, text.as_bytes(), 0o644).map_err(failed)?;
        tracing::info!("Wrote {}", path.display());
        Ok(())
    }

    fn document(&self) -> Value {
        let mut document = Map::from_iter([("version".into(), json!("v1")), ("kind".into(), json!(KIND))]);
        let mut spec = Map::new();
        let version = |version: &Option<Version>| version.as_ref().map(|version| json!(version.to_string()));
        let known = [
            ("proxy", self.proxy.clone().map(Value::from)),
            ("enabled", Some(json!(self.enabled))),
            ("active_version", version(&self.active_version)),
            ("pinned_version", version(&self.pinned_version)),
            ("ca_pin", self.ca_pin.clone().map(Value::from)),
            ("base_url", self.base_url.clone().map(Value::from)),
            ("mirrors", Some(json!(self.mirrors)).filter(|_| !self.mirrors.is_empty())),
        ];
        spec.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        for (name, value) in &self.rest {
            match (name.as_str(), value) {
                ("spec", Value::Object(unknown)) => spec.extend(unknown.clone()),
                ("version" | "kind", _) => {}
                _ => drop(document.insert(name.clone(), value.clone())),
            }
        }
        document.insert("spec".into(), Value::Object(spec));
        Value::Object(document)
    }
}

fn text_of(spec: &mut Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match spec.remove(field) {
        Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        None | Some(Value::Null) => Ok(None),
        Some(other) => Err(format!("spec.{field}: expected a text, found {other}")),
    }
}

fn texts_of(spec: &mut Map<String, Value>, field: &str) -> Result<Vec<String>, String> {
    let texts = match spec.remove(field) {
        Some(Value::Array(texts)) => texts,
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(other) => return Err(format!("spec.{field}: expected a list of texts, found {other}")),
    };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(format!("spec.{field}: expected a list of texts, found {other} in it")),
    };
    texts.into_iter().map(text).collect()
}

fn version_of(spec: &mut Map<String, Value>, field: &str) -> Result<Option<Version>, String> {
    let text = text_of(spec, field)?;
    text.map(|text| text.parse().map_err(|error| format!("spec.{field}: {error}"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;

    #[test]
    fn what_is_not_known_survives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("updates.yaml");
        let text = "version: v1\nkind: agent_versions\nnew_part: [1, 2]\nspec:\n  proxy: mytenant.example.sh\n  \
            enabled: true\n  active_version: 15.1.1\n  new_field: {a: b}\n";
        std::fs::write(&path, text).unwrap();
        let mut config = Config::load(&RealDisk, &path).unwrap();
        assert_eq!(config.proxy.as_deref(), Some("mytenant.example.sh"));
        assert_eq!(config.active_version.as_ref().unwrap().to_string(), "15.1.1");
        config.enabled = false;
        config.store(&RealDisk, &path).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        for kept in ["new_part:", "new_field:", "enabled: false", "active_version: \"15.1.1\""] {
            assert!(written.contains(kept), "{written}");
        }
        assert_eq!(Config::load(&RealDisk, &path).unwrap(), config);
    }

    #[test]
    fn errors_name_their_field() {
        let error = |text: &str| Config::parse(text.as_bytes()).unwrap_err();
        assert!(error("- 1").contains("expected a map"));
        assert!(error("kind: node").contains("kind: expected agent_versions"));
        assert!(error("spec: {enabled: maybe}").contains("spec.enabled: expected true or false"));
        assert!(error("spec: {active_version: latest}").contains("spec.active_version"));
        assert!(error("spec: {mirrors: https://a}").contains("spec.mirrors: expected a list of texts"));
        assert!(error("spec: {mirrors: [1]}").contains("found 1 in it"));
        assert!(error("\u{0}").len() > 3);
    }
}
