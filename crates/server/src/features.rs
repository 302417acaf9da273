//! The feature level of this release, and which documents need it of every server. A release that adds a gate (a field
//! or a value that keeps hosts from being upgraded) increases the level here and extends `needed`.

use refit_types::{FeatureLevel, Resource};

/// The features of one release of the server.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Its level.
    pub level: FeatureLevel,
    /// The level that a document needs of every server. A document that uses no gate of a later level needs none of
    /// it, whatever else it says.
    pub needed: fn(&Resource) -> FeatureLevel,
}

impl Features {
    /// Those of this release, which knows no gate that a server of before there were levels would not keep to.
    pub fn current() -> Self {
        Self { level: FeatureLevel::new(1), needed: |_| FeatureLevel::NONE }
    }
}

impl Default for Features {
    fn default() -> Self {
        Self::current()
    }
}
