use std::sync::Arc;

use refit_backend::{Result, SharedBackend};
use refit_migrations::{MigratingService, Registry, ResourceStore, channels_v1, channels_v2};
use refit_types::Channel;

/// Builds the way in which one release stores channels.
pub type ChannelsOf = fn(SharedBackend) -> Result<Arc<dyn ResourceStore<Channel>>>;

/// What one release of the server knows of the store: its migrations, and the forms that it reads and
/// writes. Servers of neighbouring releases share a store while a cluster is being upgraded.
#[derive(Debug, Clone)]
pub struct Release {
    /// The migrations that it applies.
    pub migrations: Registry,
    /// How it stores channels.
    pub channels: ChannelsOf,
}

impl Release {
    /// This one.
    pub fn current() -> Self {
        Self {
            migrations: Registry::released(),
            channels: |backend| Ok(Arc::new(MigratingService::new(backend, channels_v1(), channels_v2())?)),
        }
    }
}
