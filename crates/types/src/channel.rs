use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::Version;
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

/// Names below which the control plane serves something else.
const RESERVED: [&str; 2] = ["webapi", "artifacts"];
const LONGEST_NAME: usize = 200;

impl ChannelName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ChannelName {
    type Err = NotAChannelName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |allowed| NotAChannelName { found: text.chars().take(80).collect(), allowed };
        let good_part = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if text.len() > LONGEST_NAME {
            return Err(refused("at most 200 characters are allowed"));
        }
        if !text.split('/').all(good_part) {
            return Err(refused(
                "expected parts of letters, digits, '.', '_' and '-' that start with a letter or digit, joined by '/'",
            ));
        }
        if text.split('/').next().is_some_and(|first| RESERVED.contains(&first)) {
            return Err(refused("names under webapi/ and artifacts/ are reserved"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Channel {
    /// The `spec` of the channel's document.
    pub(crate) fn spec(&self) -> Value {
        json!({ "version": self.version.to_string(), "critical": self.critical })
    }

    pub(crate) fn from_parts(
        name: Option<ChannelName>,
        description: String,
        spec: Value,
        faults: &mut ValidationErrors,
    ) -> Option<Self> {
        let mut fields = Fields::of("spec", spec, faults);
        let version = fields.required_text("version", Version::from_str);
        let critical = fields.flag("critical").unwrap_or(false);
        fields.end();
        Some(Self { name: name?, description, version: version?, critical })
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
}
