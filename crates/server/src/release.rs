use std::sync::Arc;

use refit_backend::{Result, SharedBackend};
use refit_migrations::{
    MigratingService, Registry, ResourceStore, Service, autoupdate_version_v1, channels_v1, channels_v2,
    cluster_maintenance_config_v1,
};
use refit_types::{AutoupdateVersion, Channel, ClusterMaintenanceConfig, Edition, Version};

use crate::Features;

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
            channels: |backend| Ok(Arc::new(MigratingService::new(backend, channels_v1(), channels_v2())?)),
            edition: Edition::Oss,
            features: Features::current(),
        }
    }
}

/// How every release stores `cluster_maintenance_config`: it has had one form only.
pub(crate) fn maintenance_configs(
    backend: &SharedBackend,
) -> Arc<dyn ResourceStore<ClusterMaintenanceConfig>> {
    Arc::new(Service::new(backend.clone(), cluster_maintenance_config_v1()))
}

/// How every release stores `autoupdate_version`: it has had one form only.
pub(crate) fn autoupdate_versions(backend: &SharedBackend) -> Arc<dyn ResourceStore<AutoupdateVersion>> {
    Arc::new(Service::new(backend.clone(), autoupdate_version_v1()))
}
