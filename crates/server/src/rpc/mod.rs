//! The gRPC services: each turns a request into a call of a pure or stored thing, and its answer back.

mod agents;
mod auth;
mod cluster;
mod events;
mod migrations;
mod nodes;
mod paging;
mod resources;
mod rollouts;
mod rotation;

pub(crate) use agents::Agents;
pub(crate) use auth::Auth;
pub(crate) use cluster::Cluster;
pub(crate) use events::Events;
pub(crate) use migrations::Migrations;
pub(crate) use nodes::Nodes;
pub(crate) use resources::Resources;
pub(crate) use rollouts::RolloutRpc;
pub(crate) use rotation::Rotations;

use refit_authority::{Error as AuthorityError, RotationError, TokenError};
use refit_backend::Error as StoreError;
pub(crate) use refit_convert::timestamp;
use refit_resources::ResourceError;
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

fn resource_status(error: ResourceError) -> Status {
    let message = error.to_string();
    match error {
        ResourceError::AlreadyExists { .. } => Status::already_exists(message),
        ResourceError::NotFound { .. } => Status::not_found(message),
        ResourceError::Conflict { .. } => Status::aborted(message),
        ResourceError::Refused(_) => Status::failed_precondition(message),
        ResourceError::Unreadable { .. } => Status::data_loss(message),
        ResourceError::Store(error) => store_status(error),
    }
}

fn token_status(error: TokenError) -> Status {
    let message = error.to_string();
    match error {
        TokenError::Unknown | TokenError::Expired(_) => Status::unauthenticated(message),
        TokenError::Role { .. } => Status::permission_denied(message),
        TokenError::Ttl => Status::invalid_argument(format!("ttl: {message}")),
        TokenError::Name { .. } => Status::not_found(message),
        TokenError::Static(_) => Status::failed_precondition(message),
        TokenError::Store(error) => store_status(error),
    }
}

fn rotation_status(error: RotationError) -> Status {
    let message = error.to_string();
    match error {
        RotationError::Authority(AuthorityError::Conflict) => Status::aborted(
            "another server has moved the rotation in the meantime; see `refitctl auth rotate status`",
        ),
        RotationError::Impossible { .. } => Status::failed_precondition(message),
        _ => Status::internal(message),
    }
}
