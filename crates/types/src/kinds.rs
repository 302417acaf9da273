//! The table of kinds: one line for each kind of resource, which its type describes ([`ResourceKind::INFO`]). How each
//! is stored is in the table of `refit-resources`.

mod channel;

use serde_json::Value;

use crate::resource_kind::{Detail, Header, KindInfo, ResourceKind, kinds};
use crate::validation::ValidationErrors;
use crate::{AutoupdateVersion, ClusterMaintenanceConfig};

pub use channel::{Channel, ChannelName};

kinds! {
    /// A named pointer to a version.
    Channel;
    /// Whether, when and in which order agents are updated.
    ClusterMaintenanceConfig boxed;
    /// What the agents of the cluster should run.
    AutoupdateVersion;
}
