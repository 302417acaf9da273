//! The table of how each kind is stored by this release: one row for each kind. The server opens all of them when it
//! starts.

use refit_backend::{Result, SharedBackend};
use refit_types::{AutoupdateVersion, ClusterMaintenanceConfig, Kind, Resource};

use crate::{
    FormatStore, MigratingStore, ResourceStore, SharedStore, StorageFormat, any_kind, channels_v1,
    channels_v2, documents,
};

/// How a release stores each kind.
pub type OpenStore = fn(Kind, SharedBackend) -> Result<SharedStore>;

/// How this release stores each kind.
pub fn open_store(kind: Kind, backend: SharedBackend) -> Result<SharedStore> {
    Ok(match kind {
        Kind::Channel => any_kind(MigratingStore::new(backend, channels_v1(), channels_v2())?),
        Kind::ClusterMaintenanceConfig => {
            any_kind(FormatStore::new(backend, cluster_maintenance_config_v1()))
        }
        Kind::AutoupdateVersion => any_kind(FormatStore::new(backend, autoupdate_version_v1())),
    })
}

/// The first format of `cluster_maintenance_config`: the whole document.
pub fn cluster_maintenance_config_v1() -> StorageFormat<ClusterMaintenanceConfig> {
    documents("/cluster_maintenance_config/v1/default")
}

/// The first format of `autoupdate_version`: the whole document.
pub fn autoupdate_version_v1() -> StorageFormat<AutoupdateVersion> {
    documents("/autoupdate_version/v1/default")
}

/// The stores of all kinds.
#[derive(Debug, Clone)]
pub struct Stores(Vec<SharedStore>);

impl Stores {
    /// Those of a release, in one backend.
    pub fn open(backend: &SharedBackend, open: OpenStore) -> Result<Self> {
        Kind::ALL.into_iter().map(|kind| open(kind, backend.clone())).collect::<Result<_>>().map(Self)
    }

    /// The store of that kind.
    pub fn of(&self, kind: Kind) -> &dyn ResourceStore<Resource> {
        &*self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use refit_backend::MemoryBackend;
    use serde_json::json;

    use super::*;
    use crate::ResourceError;

    fn resource(document: serde_json::Value) -> Resource {
        Resource::from_document(document).unwrap().0
    }

    /// One of each kind, and the keys at which every release has to find it.
    fn samples() -> Vec<(Resource, &'static [&'static str])> {
        let channel = json!({
            "kind": "channel", "metadata": { "name": "stable/cloud" }, "spec": { "version": "1.2.3" },
        });
        let version = json!({ "kind": "autoupdate_version", "spec": { "agent_version": "1.2.3" } });
        vec![
            (resource(channel), &["/channels/default/stable/cloud", "/channels/v2/default/stable/cloud"]),
            (
                resource(json!({ "kind": "cluster_maintenance_config" })),
                &["/cluster_maintenance_config/v1/default/cluster-maintenance-config"],
            ),
            (resource(version), &["/autoupdate_version/v1/default/autoupdate-version"]),
        ]
    }

    #[tokio::test]
    async fn every_kind_is_stored_below_its_keys_and_read_again() {
        let mut kinds = Vec::new();
        for (resource, keys) in samples() {
            let backend: SharedBackend = Arc::new(MemoryBackend::default());
            let stores = Stores::open(&backend, open_store).unwrap();
            let (store, name) = (stores.of(resource.kind()), resource.name());
            let revision = store.create(name, &resource, &[]).await.unwrap();
            let found = store.get(name).await.unwrap().unwrap();
            assert_eq!((found.value, found.revision), (resource.clone(), revision));
            let page = backend.range(&refit_backend::KeyRange::all(), 10).await.unwrap();
            let stored: Vec<&str> = page.items.iter().map(|item| item.key.as_str()).collect();
            assert_eq!(stored, keys);
            kinds.push(resource.kind());
        }
        assert_eq!(kinds, Kind::ALL, "the stores are in the order of the kinds");
    }

    #[tokio::test]
    async fn a_store_refuses_resources_of_another_kind() {
        let backend: SharedBackend = Arc::new(MemoryBackend::default());
        let stores = Stores::open(&backend, open_store).unwrap();
        for (resource, _) in samples() {
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != resource.kind()) {
                let refused = stores.of(kind).upsert("x", &resource, &[]).await.unwrap_err();
                let why = format!("a {} cannot be stored as a {kind}", resource.kind());
                assert_eq!(refused, ResourceError::Refused(why));
            }
        }
    }
}
