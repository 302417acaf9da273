//! For tests only: the wire as released versions speak it. Their `.proto` files are in `crates/proto/released` and
//! never change. [`v0_1`] has their types, to play an old agent or an old `refitctl` against a present server;
//! [`OldServer`] stands in front of a present server and lets only through what that release knows.

mod compatibility;
mod old_server;
mod schema;

pub use compatibility::breaking_changes;
pub use old_server::OldServer;
pub use schema::{Malformed, Schema};

/// The compiled `.proto` files of 0.1.
pub const DESCRIPTORS_0_1: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The types, clients and servers of 0.1.
#[allow(missing_docs, clippy::all)]
pub mod v0_1 {
    pub mod v1 {
        tonic::include_proto!("refit.v1");
    }
    pub mod migrations {
        pub mod v1 {
            tonic::include_proto!("refit.migrations.v1");
        }
    }
    pub mod resources {
        pub mod v1 {
            tonic::include_proto!("refit.resources.v1");
        }
    }
    pub mod auth {
        pub mod v1 {
            tonic::include_proto!("refit.auth.v1");
        }
    }
    pub mod cluster {
        pub mod v1 {
            tonic::include_proto!("refit.cluster.v1");
        }
    }
    pub mod agent {
        pub mod v1 {
            tonic::include_proto!("refit.agent.v1");
        }
    }
    pub mod nodes {
        pub mod v1 {
            tonic::include_proto!("refit.nodes.v1");
        }
    }
    pub mod rotation {
        pub mod v1 {
            tonic::include_proto!("refit.rotation.v1");
        }
    }
    pub mod rollouts {
        pub mod v1 {
            tonic::include_proto!("refit.rollouts.v1");
        }
    }
    pub mod events {
        pub mod v1 {
            tonic::include_proto!("refit.events.v1");
        }
    }
}
