//! The gRPC services: each turns a request into a call of a pure or stored thing, and its answer back.

mod auth;
mod cluster;
mod migrations;
mod paging;
mod resources;

pub(crate) use auth::Auth;
pub(crate) use cluster::Cluster;
pub(crate) use migrations::Migrations;
pub(crate) use resources::Resources;

use jiff::Timestamp;
use refit_backend::Error as StoreError;
use refit_migrations::ServiceError;
use tonic::Status;

fn store_status(error: StoreError) -> Status {
    let message = error.to_string();
    match error {
        StoreError::AlreadyExists { .. } => Status::already_exists(message),
        StoreError::NotFound { .. } => Status::not_found(message),
        StoreError::Conflict { .. } => Status::aborted(message),
        StoreError::Invalid(_) | StoreError::TooLarge(_) => Status::invalid_argument(message),
        StoreError::Unavailable { .. } | StoreError::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

fn service_status(error: ServiceError) -> Status {
    let message = error.to_string();
    match error {
        ServiceError::AlreadyExists { .. } => Status::already_exists(message),
        ServiceError::NotFound { .. } => Status::not_found(message),
        ServiceError::Conflict { .. } => Status::aborted(message),
        ServiceError::Garbled { .. } => Status::data_loss(message),
        ServiceError::Store(error) => store_status(error),
    }
}

fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = (at.as_second(), at.subsec_nanosecond());
    // A moment before 1970 has a negative fraction here and a positive one on the wire.
    match nanos {
        0.. => prost_types::Timestamp { seconds, nanos },
        _ => prost_types::Timestamp { seconds: seconds - 1, nanos: nanos + 1_000_000_000 },
    }
}
