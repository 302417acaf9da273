//! The kind `channel`: names that agents follow instead of a version, and what they may be called. The server serves
//! them at `/v1/<name>/version`.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::Version;
use crate::resource_kind::{Column, Detail, Editors, Header, KindInfo, Naming, ResourceKind};
use crate::validation::{Fields, ValidationErrors};

/// A name that agents follow instead of a version: whoever moves the channel moves them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// What it is called; served at `/v1/<name>/version`.
    pub name: ChannelName,
    /// What it is for, in the operator's words.
    pub description: String,
    /// The version that its followers should run.
    pub version: Version,
    /// Whether they should go there outside their maintenance windows too.
    pub critical: bool,
}

/// One or more parts of letters, digits, `.`, `_` and `-`, joined by `/`: `stable/cloud`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelName(String);

/// A text that cannot name a channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a channel name; {allowed}")]
pub struct NotAChannelName {
    found: String,
    allowed: &'static str,
}

/// Paths below which the control plane serves something else, or will: no new channel may begin with one.
const RESERVED: [&str; 7] = ["api", "artifacts", "healthz", "install.sh", "tuf", "web", "webapi"];
const LONGEST_NAME: usize = 200;

impl ChannelName {
    /// The name of a channel that may have been stored by a release that reserved fewer names.
    pub fn from_stored(text: &str) -> Result<Self, NotAChannelName> {
        let good_part = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if text.len() > LONGEST_NAME {
            return Err(NotAChannelName::new(text, "at most 200 characters are allowed"));
        }
        if !text.split('/').all(good_part) {
            return Err(NotAChannelName::new(
                text,
                "expected parts of letters, digits, '.', '_' and '-' that start with a letter or digit, joined by '/'",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ChannelName {
    type Err = NotAChannelName;

    /// The name of a new channel.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = Self::from_stored(text)?;
        if text.split('/').next().is_some_and(|first| RESERVED.contains(&first)) {
            return Err(NotAChannelName::new(
                text,
                "names that begin with api, artifacts, healthz, install.sh, tuf, web or webapi are reserved",
            ));
        }
        Ok(name)
    }
}

impl NotAChannelName {
    fn new(text: &str, allowed: &'static str) -> Self {
        Self { found: text.chars().take(80).collect(), allowed }
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ResourceKind for Channel {
    const INFO: KindInfo = KindInfo {
        name: "channel",
        document_version: "v2",
        naming: Naming::Named {
            stored: |name| ChannelName::from_stored(name).map(drop).map_err(|error| error.to_string()),
            new: |name| ChannelName::from_str(name).map(drop).map_err(|error| error.to_string()),
        },
        editors: Editors::Versions,
        drives_rollouts: false,
        columns: &[
            Column::text("CHANNEL", "/metadata/name"),
            Column::text("VERSION", "/spec/version"),
            Column::flag("CRITICAL", "/spec/critical"),
            Column::text("REVISION", "/metadata/revision"),
            Column::text("DESCRIPTION", "/metadata/description"),
        ],
        draft: None,
    };

    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn spec(&self, _: Detail) -> Value {
        json!({ "version": self.version.to_string(), "critical": self.critical })
    }

    fn from_parts(header: Header, spec: Value, errors: &mut ValidationErrors) -> Option<Self> {
        let mut fields = Fields::of("spec", spec, errors);
        let version = fields.required_text("version", Version::from_str);
        let critical = fields.flag("critical").unwrap_or(false);
        fields.end();
        let name = ChannelName::from_stored(&header.name?).ok()?;
        Some(Self { name, description: header.description, version: version?, critical })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_names_are_safe_paths() {
        for good in ["stable", "stable/cloud", "cloud/v15", "a.b_c-d/e"] {
            assert_eq!(good.parse::<ChannelName>().unwrap().as_str(), good);
        }
        for bad in
            ["", "/", "/a", "a/", "a//b", "../a", "a/..", ".hidden", "webapi", "artifacts/x", "a b", "é"]
        {
            assert!(bad.parse::<ChannelName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_of_the_control_plane_are_refused_to_new_channels_only() {
        for first in ["api", "artifacts", "healthz", "install.sh", "tuf", "web", "webapi"] {
            for name in [first.to_owned(), format!("{first}/stable")] {
                let refused = name.parse::<ChannelName>().unwrap_err().to_string();
                assert!(refused.contains("are reserved"), "{refused}");
                assert_eq!(ChannelName::from_stored(&name).unwrap().as_str(), name);
            }
        }
        for good in ["apis", "stable/web", "website", "install"] {
            assert_eq!(good.parse::<ChannelName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_document_of_a_reserved_name_is_read_but_not_created() {
        let document = json!({
            "kind": "channel", "metadata": { "name": "web/stable" }, "spec": { "version": "15.1.1" },
        });
        let (stored, _) = crate::Resource::from_document(document.clone()).unwrap();
        assert_eq!(stored.name(), "web/stable");
        let refused = crate::Resource::from_new_document(document).unwrap_err().to_string();
        assert!(
            refused.starts_with(r#"metadata.name: "web/stable" is not a channel name; names that begin"#)
        );
    }
}
