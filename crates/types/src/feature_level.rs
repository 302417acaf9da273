//! The feature level of a server release. No I/O: the server compares its own level with those that it reads.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Increases with every release that adds a gate: a setting by which operators keep hosts from being upgraded. A
/// server that does not know a gate would ignore it, so a gate takes effect only while every server has its level, and
/// a server below the level in use makes no decisions. Records from before levels existed have level none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureLevel(u32);

impl FeatureLevel {
    /// The level that every server has.
    pub const NONE: Self = Self(0);

    /// The level of that number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Whether every server has it.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
