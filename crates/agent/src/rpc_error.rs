//! Why a call to the control plane failed, and whether a retry can help.

use refit_identity::IdentityStoreError;
use refit_proto::DialError;
use tonic::{Code, Status};

use crate::convert::is_distrust;

/// Why a call to the control plane failed.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// No connection.
    #[error("{}", dial_message(.0))]
    Dial(#[from] DialError),
    /// The server refused, or could not do it now.
    #[error("{}", .0.message())]
    Refused(Box<Status>),
    /// The server's answer cannot be used.
    #[error("the control plane answered something that cannot be used: {0}")]
    Answer(String),
    /// Keys and certificates.
    #[error(transparent)]
    Identity(#[from] refit_identity::Error),
    /// The agent's own store.
    #[error(transparent)]
    Store(#[from] IdentityStoreError),
}

/// A server that is not trusted was reached: it must not be called unreachable.
fn dial_message(error: &DialError) -> String {
    match error {
        DialError::Untrusted { .. } => error.to_string(),
        _ => format!("the control plane cannot be reached: {error}"),
    }
}

impl From<Status> for RpcError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

impl RpcError {
    /// Whether a retry cannot succeed: a bad token, a foreign cluster.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Dial(error) => is_distrust(error) || matches!(error, DialError::Address(_)),
            Self::Refused(status) => matches!(
                status.code(),
                Code::Unauthenticated
                    | Code::PermissionDenied
                    | Code::AlreadyExists
                    | Code::InvalidArgument
                    | Code::NotFound
                    | Code::Unimplemented
            ),
            Self::Answer(_) | Self::Identity(_) | Self::Store(_) => true,
        }
    }

    /// Whether one side does not accept the certificate of the other.
    pub fn is_distrust(&self) -> bool {
        match self {
            Self::Dial(error) => is_distrust(error),
            Self::Refused(status) => status.code() == Code::Unauthenticated,
            _ => false,
        }
    }
}
