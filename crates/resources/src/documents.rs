use bytes::Bytes;
use refit_backend::Key;
use refit_types::{AutoupdateVersion, ClusterMaintenanceConfig, Resource};

use crate::StorageFormat;

/// The first form of `cluster_maintenance_config`: the whole document.
pub fn cluster_maintenance_config_v1() -> StorageFormat<ClusterMaintenanceConfig> {
    documents("/cluster_maintenance_config/v1/default")
}

/// The first form of `autoupdate_version`: the whole document.
pub fn autoupdate_version_v1() -> StorageFormat<AutoupdateVersion> {
    documents("/autoupdate_version/v1/default")
}

fn documents<T: Clone + Into<Resource> + TryFrom<Resource>>(prefix: &str) -> StorageFormat<T> {
    StorageFormat { prefix: Key::new(prefix).expect("a constant that is a key"), encode, decode }
}

fn encode<T: Clone + Into<Resource>>(value: &T) -> Bytes {
    let resource: Resource = value.clone().into();
    serde_json::to_vec(&resource.document(None)).expect("maps with text keys are always JSON").into()
}

fn decode<T: TryFrom<Resource>>(name: &str, value: &[u8]) -> Result<T, String> {
    let document = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let (resource, _) = Resource::from_document(document).map_err(|faults| faults.to_string())?;
    let kind = resource.kind();
    match resource.name() == name {
        true => T::try_from(resource).map_err(|_| format!("it is a {kind}")),
        false => Err(format!("it names itself differently than {name:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_come_back_as_they_went() {
        let config = ClusterMaintenanceConfig { description: "ours".into(), ..Default::default() };
        let form = cluster_maintenance_config_v1();
        let name = "cluster-maintenance-config";
        assert_eq!(
            form.key(name).unwrap().as_str(),
            format!("/cluster_maintenance_config/v1/default/{name}")
        );
        assert_eq!((form.decode)(name, &(form.encode)(&config)).unwrap(), config);
        assert!(
            (form.decode)("other", &(form.encode)(&config)).is_err() && (form.decode)(name, b"{").is_err()
        );
        let found = (autoupdate_version_v1().decode)(name, &(form.encode)(&config));
        assert_eq!(found.unwrap_err(), "it is a cluster_maintenance_config");
    }
}
