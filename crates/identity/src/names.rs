//! Names of clusters, users and servers: short, plain, and safe to write into a certificate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is not the name it should be, and what would be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a {what}: expected {expected}", quoted(.given))]
pub struct NameError {
    /// What was given.
    pub given: String,
    /// What it was meant to be.
    pub what: &'static str,
    /// What is allowed.
    pub expected: String,
}

/// Repeats what was given only as far as a name can be long, so that a misplaced secret is not shown.
pub(crate) fn quoted(given: &str) -> String {
    let length = given.chars().count();
    if length > MAX_NAME { format!("a text of {length} characters") } else { format!("{given:?}") }
}

const MAX_NAME: usize = 64;

/// "<cluster> Refit CA" must fit the 64 characters that X.509 gives a common name.
const MAX_CLUSTER_NAME: usize = 55;

fn plain(given: &str, max: usize, marks: &[u8]) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = given.as_bytes();
    bytes.len() <= max
        && bytes.first().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || marks.contains(byte))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $marks:literal, $expected:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(given: &str) -> Result<Self, NameError> {
                if plain(given, $max, $marks) {
                    return Ok(Self(given.into()));
                }
                Err(NameError { given: given.into(), what: $what, expected: $expected.into() })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(given: String) -> Result<Self, NameError> {
                given.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

name! {
    /// Names a cluster: everyone whom one certificate authority vouches for.
    ClusterName, "cluster name", MAX_CLUSTER_NAME, b".-",
    "1 to 55 of a-z, 0-9, \".\" and \"-\", beginning with a letter or digit"
}

name! {
    /// Names a person or a program that signs in.
    UserName, "user name", MAX_NAME, b"._@-",
    "1 to 64 of a-z, 0-9, \".\", \"_\", \"@\" and \"-\", beginning with a letter or digit"
}

name! {
    /// Tells the servers of one control plane apart.
    ServerId, "server id", MAX_NAME, b"._-",
    "1 to 64 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or digit"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "0", "alice@example.com", "a.b_c-d", &"x".repeat(64)] {
            assert_eq!(good.parse::<UserName>().unwrap().to_string(), good);
        }
        for bad in ["", "Alice", "-a", ".a", "@a", "a b", "a/b", "a%2f", "ä", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<UserName>().is_err(), "{bad:?}");
        }
        assert!("a@b".parse::<ClusterName>().is_err());
        assert!("x".repeat(56).parse::<ClusterName>().is_err());
        assert!("x".repeat(55).parse::<ClusterName>().is_ok());
        assert!("a@b".parse::<ServerId>().is_err());
    }

    #[test]
    fn errors_say_what_is_allowed() {
        assert_eq!(
            "Root!".parse::<UserName>().unwrap_err().to_string(),
            "\"Root!\" is not a user name: expected 1 to 64 of a-z, 0-9, \".\", \"_\", \"@\" and \"-\", \
             beginning with a letter or digit"
        );
        let long = "x".repeat(65).parse::<UserName>().unwrap_err().to_string();
        assert!(long.starts_with("a text of 65 characters is not a user name"), "{long}");
    }

    #[test]
    fn json_is_checked_too() {
        let name: UserName = serde_json::from_str("\"alice\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"alice\"");
        let error = serde_json::from_str::<ClusterName>("\"A\"").unwrap_err().to_string();
        assert!(error.contains("is not a cluster name"), "{error}");
    }
}
