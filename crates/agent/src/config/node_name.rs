//! The name that a host is given in place of its hostname.

use std::fmt;
use std::str::FromStr;

/// As long as the longest name of a host.
const LONGEST: usize = 253;

/// What a host is called where its own name does not tell it from others, as with several on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName(String);

impl NodeName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_part = |part: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !part.is_empty() && part.len() <= 63 && part.bytes().all(plain) && !part.starts_with('-')
        };
        if text.len() > LONGEST || !text.split('.').all(is_part) {
            let shown: String = text.chars().take(80).collect();
            return Err(format!(
                "{shown:?} is not a name of a host; expected something like web-1 or db.example.com"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts() {
        for good in ["web-1", "db.example.com", "A_b", "7", &"a".repeat(63)] {
            assert_eq!(good.parse::<NodeName>().unwrap().to_string(), good);
        }
        let (long_part, long) = ("a".repeat(64), ["a".repeat(60).as_str(); 5].join("."));
        for bad in ["", ".", "a.", "-a", "a b", "a\n", "ä", "a/b", &long_part, &long] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
    }
}
