//! Version numbers of agents, parsed once and ordered by semantic versioning.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A semantic version, as releases are named: `15.1.1`, `16.0.0-rc.1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(semver::Version);

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a version; expected MAJOR.MINOR.PATCH, like 15.1.1")]
pub struct NotAVersion {
    found: String,
}

/// Longer than any release name; keeps a hostile one out of logs and paths.
const LONGEST: usize = 64;

impl Version {
    /// The first number: what is stored by one may not be readable for a lower one.
    pub fn major(&self) -> u64 {
        self.0.major
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    /// A leading `v` is accepted, because people write it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        match semver::Version::parse(bare) {
            Ok(version) if text.len() <= LONGEST => Ok(Self(version)),
            _ => Err(NotAVersion { found: text.chars().take(LONGEST).collect() }),
        }
    }
}

impl TryFrom<String> for Version {
    type Error = NotAVersion;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        let parse = |text: &str| text.parse::<Version>();
        assert_eq!(parse("v15.1.1").unwrap().to_string(), "15.1.1");
        assert!(parse("15.1.10").unwrap() > parse("15.1.9").unwrap());
        assert!(parse("16.0.0-rc.1").unwrap() < parse("16.0.0").unwrap());
        for bad in ["", "15", "15.1", "15.1.1.1", "latest", "../../etc", "15.1.1 ", "1.2.3-rc/1"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&format!("1.2.3-{}", "x".repeat(100))).is_err());
    }
}
