//! The wire between the processes: what the `.proto` files say, as Rust types, clients and servers.

mod dial;

pub use dial::{DialError, dial};

/// Shared by all services.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("refit.v1");
}

/// How the stored data changed shape.
pub mod migrations {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.migrations.v1");
    }
}

/// The cluster's resources.
pub mod resources {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.resources.v1");
    }
}

/// Who may speak.
pub mod auth {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.auth.v1");
    }
}

/// The cluster at a glance.
pub mod cluster {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.cluster.v1");
    }
}

/// The compiled `.proto` files, for whoever needs to walk every method there is.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
