//! What one release of the server knows of the store. Tests start servers of other releases by it.

use refit_migrations::Registry;
use refit_resources::{OpenStore, open_store};
use refit_types::{Edition, Version};

use crate::Features;

/// What one release of the server knows of the store: its migrations, and the formats that it reads and
/// writes. Servers of neighbouring releases share a store while a cluster is being upgraded.
#[derive(Debug, Clone)]
pub struct Release {
    /// The migrations that it applies.
    pub migrations: Registry,
    /// How it stores each kind of resource.
    pub stores: OpenStore,
    /// Its version: what hosts should run while no operator has chosen, and what the binary around it says of itself.
    pub version: Version,
    /// Which build it is, as `find` tells those who would run the same.
    pub edition: Edition,
    /// Which gates it keeps to.
    pub features: Features,
}

impl Release {
    /// This one, in a binary of that version.
    pub fn current(version: Version) -> Self {
        Self {
            version,
            migrations: Registry::released(),
            stores: open_store,
            edition: Edition::Oss,
            features: Features::current(),
        }
    }
}
