//! What servers of a release can keep to. No I/O: the server compares its own level with those that it reads.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts up with every release that adds a gate: something an operator can say that keeps hosts from being upgraded.
/// A server that does not know a gate would let hosts through, so a gate is used only while every server is of its
/// level, and a server below the level in use decides nothing. Records of before there were levels are of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureLevel(u32);

impl FeatureLevel {
    /// What every server can do.
    pub const NONE: Self = Self(0);

    /// The level of that number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Whether it is what every server can do.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
