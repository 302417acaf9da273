//! The wire protocol: types, clients and servers generated from the `.proto` files, and the readers for older peers.

mod dial;
mod readers;
mod redacted;
mod text_enum;

pub use dial::{DialError, dial};
pub use text_enum::{TextEnum, code_of, codes_of, known_text, text_of, texts_of};

/// Shared by all services.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("refit.v1");
}

/// Migrations of stored data.
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

/// Identities and sign-in.
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

/// Joining, renewal and heartbeats of agents.
pub mod agent {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.agent.v1");
    }
}

/// The hosts of the fleet.
pub mod nodes {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.nodes.v1");
    }
}

/// The replacement of the cluster's authorities.
pub mod rotation {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.rotation.v1");
    }
}

/// Rollouts: status and operators' actions.
pub mod rollouts {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.rollouts.v1");
    }
}

/// The audit log.
pub mod events {
    /// The first version of it.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("refit.events.v1");
    }
}

/// The compiled `.proto` files, for code that enumerates all methods.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
