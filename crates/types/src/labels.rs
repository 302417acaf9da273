//! Host and agent labels, packed into one allocation because every server holds those of the whole fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Key-value pairs of a host that groups select by: `environment=staging`. Stored as one text of `name=value` lines,
/// sorted by name, to save memory. Names and values contain no line break, and names no equals sign.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(Box<str>);

/// Why a label was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadLabel(String);

const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 256;
/// More than anyone selects by; each host's are held in memory by every server.
const MOST: usize = 64;

impl Labels {
    /// Adds one, or replaces its value.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<(), BadLabel> {
        let named = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(named) {
            let shown: String = name.chars().take(80).collect();
            return Err(BadLabel(format!(
                "{shown:?} is not a label's name; expected 1 to {LONGEST_NAME} letters, digits, '.', '_', '-' or '/'"
            )));
        }
        if value.chars().count() > LONGEST_VALUE || value.chars().any(char::is_control) {
            return Err(BadLabel(format!(
                "the value of the label {name:?} is longer than {LONGEST_VALUE} characters, or has a control character"
            )));
        }
        if self.get(name).is_none() && self.iter().count() >= MOST {
            return Err(BadLabel(format!("there are more than the {MOST} labels that are allowed")));
        }
        let before = self.iter().take_while(|(known, _)| *known < name);
        let after = self.iter().skip_while(|(known, _)| *known <= name);
        let lines = before.chain([(name, value)]).chain(after).map(|(name, value)| format!("{name}={value}"));
        self.0 = lines.collect::<Vec<_>>().join("\n").into();
        Ok(())
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split('\n').filter_map(|line| line.split_once('='))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of these are among them.
    pub fn include(&self, wanted: &Labels) -> bool {
        wanted.iter().all(|(name, value)| self.get(name) == Some(value))
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = BadLabel;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self, Self::Error> {
        let mut labels = Self::default();
        for (name, value) in &map {
            labels.insert(name, value)?;
        }
        Ok(labels)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }
}

impl FromStr for Labels {
    type Err = BadLabel;

    /// `name=value,name=value`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut labels = Self::default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(BadLabel(format!("{:?} is not name=value", pair.trim())));
            };
            labels.insert(name.trim(), value.trim())?;
        }
        Ok(labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name}={value}", if n > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs_within_bounds() {
        let labels: Labels = "environment=staging, zone=eu-1/a,".parse().unwrap();
        assert_eq!(labels.to_string(), "environment=staging,zone=eu-1/a");
        assert!(labels.include(&"zone=eu-1/a".parse().unwrap()));
        assert!(!labels.include(&"zone=eu".parse().unwrap()) && !labels.include(&"x=y".parse().unwrap()));
        for bad in ["x", "=y", "a b=c"] {
            assert!(bad.parse::<Labels>().is_err(), "{bad}");
        }
        let mut few: Labels = "b=2,a=1=one,c=".parse().unwrap();
        few.insert("b", "zwei").unwrap();
        let all: Vec<_> = few.iter().collect();
        assert_eq!(all, [("a", "1=one"), ("b", "zwei"), ("c", "")]);
        assert_eq!((few.get("a"), few.get("c"), few.get("d")), (Some("1=one"), Some(""), None));
        assert!(Labels::default().is_empty() && Labels::default().iter().next().is_none());
        let mut many = Labels::default();
        for n in 0..64 {
            many.insert(&n.to_string(), "v").unwrap();
        }
        assert!(many.insert("one-more", "v").is_err() && many.insert("7", "again").is_ok());
        assert!(many.insert("7", &"x".repeat(257)).is_err() && many.insert("7", "a\nb").is_err());
    }
}
