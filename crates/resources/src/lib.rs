//! How the resources of every kind are stored: below which keys, as which bytes, and through which store.
//!
//! [`open_store`] is the table of kinds. A kind that was stored in one format has a [`FormatStore`]; one that changes its
//! format has a [`MigratingStore`] while servers of both releases run. Migrations themselves are in `refit-migrations`.

mod any_kind;
mod channels;
mod documents;
mod error;
mod format_store;
mod migrating_store;
mod storage_format;
mod storage_table;
mod store;

pub use any_kind::any_kind;
pub use channels::{channels_v1, channels_v2};
pub use documents::documents;
pub use error::ResourceError;
pub use format_store::FormatStore;
pub use migrating_store::{MigratingStore, Side, retired_key, winner};
pub use storage_format::StorageFormat;
pub use storage_table::{
    OpenStore, Stores, autoupdate_version_v1, cluster_maintenance_config_v1, open_store,
};
pub use store::{Alongside, Found, Listed, Operation, ResourceStore, SharedStore};
