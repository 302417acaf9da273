//! The format of kinds that are stored as their whole document, which is where every new kind begins.

use bytes::Bytes;
use refit_backend::Key;
use refit_types::{Resource, ResourceKind};

use crate::StorageFormat;

/// The whole document, below that key.
pub fn documents<T: ResourceKind>(prefix: &str) -> StorageFormat<T> {
    StorageFormat { prefix: Key::new(prefix).expect("a constant that is a key"), encode, decode }
}

fn encode<T: ResourceKind>(value: &T) -> Bytes {
    let resource: Resource = value.clone().into();
    serde_json::to_vec(&resource.document(None)).expect("maps with text keys are always JSON").into()
}

fn decode<T: ResourceKind>(name: &str, value: &[u8]) -> Result<T, String> {
    let document = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let (resource, _) = Resource::from_document(document).map_err(|errors| errors.to_string())?;
    let kind = resource.kind();
    match resource.name() == name {
        true => T::try_from(resource).map_err(|_| format!("it is a {kind}")),
        false => Err(format!("it names itself differently than {name:?}")),
    }
}

#[cfg(test)]
mod tests {
    use refit_types::ClusterMaintenanceConfig;

    use crate::{autoupdate_version_v1, cluster_maintenance_config_v1};

    #[test]
    fn both_kinds_come_back_as_they_went() {
        let config = ClusterMaintenanceConfig { description: "ours".into(), ..Default::default() };
        let format = cluster_maintenance_config_v1();
        let name = "cluster-maintenance-config";
        assert_eq!(
            format.key(name).unwrap().as_str(),
            format!("/cluster_maintenance_config/v1/default/{name}")
        );
        assert_eq!((format.decode)(name, &(format.encode)(&config)).unwrap(), config);
        assert!(
            (format.decode)("other", &(format.encode)(&config)).is_err()
                && (format.decode)(name, b"{").is_err()
        );
        let found = (autoupdate_version_v1().decode)(name, &(format.encode)(&config));
        assert_eq!(found.unwrap_err(), "it is a cluster_maintenance_config");
    }
}
