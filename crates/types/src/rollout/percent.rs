//! Percentages of a group and how they round: limits up, thresholds exactly.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A share of a group, in whole percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(u8);

/// A text that is no percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a percentage; expected 0% to 100%")]
pub struct NotAPercentage {
    found: String,
}

impl Percent {
    /// None of it.
    pub const ZERO: Self = Self(0);
    /// A tenth of it.
    pub const TENTH: Self = Self(10);
    /// All of it.
    pub const ALL: Self = Self(100);

    /// That many, if there can be so many.
    pub fn new(percent: u8) -> Option<Self> {
        (percent <= 100).then_some(Self(percent))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// How many of `whole` may be under way: rounded up, so that only 0% is none.
    pub fn ceil_of(self, whole: u32) -> u32 {
        let share = (u64::from(whole) * u64::from(self.0)).div_ceil(100);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    /// Whether `part` of `whole` is more than this share.
    pub fn is_exceeded_by(self, part: u32, whole: u32) -> bool {
        u64::from(part) * 100 > u64::from(whole) * u64::from(self.0)
    }
}

impl FromStr for Percent {
    type Err = NotAPercentage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
        let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let percent = is_plain.then(|| digits.parse().ok()).flatten().and_then(Self::new);
        percent.ok_or_else(|| NotAPercentage { found: text.chars().take(80).collect() })
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl TryFrom<String> for Percent {
    type Error = NotAPercentage;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> Self {
        percent.to_string()
    }
}
