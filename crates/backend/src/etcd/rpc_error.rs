//! Classifies what etcd and the transport report by whether the request may be sent again.

use std::error::Error as StdError;
use std::io;

use rustls::AlertDescription;
use tonic::{Code, ConnectError, Status};

use crate::Error;

/// Why a request to one member failed, classified by what the client may do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EtcdError {
    /// The request was not carried out; a retry may succeed.
    NotDone(String),
    /// The request may or may not have been carried out.
    Unknown(String),
    /// Not carried out, and trying the same member again will not help.
    Permanent(String),
    /// Not carried out: the token is not or no longer valid.
    Token(String),
    /// Not carried out: the user or certificate may not do this.
    Refused(String),
    /// Not carried out: there is no such lease.
    NoLease,
    /// The store's own failure.
    Failed(String),
}

impl EtcdError {
    pub(super) fn into_error(self, store: &str) -> Error {
        let store = store.to_owned();
        match self {
            Self::NotDone(reason) | Self::Unknown(reason) | Self::Permanent(reason) => {
                Error::Unavailable { store, reason }
            }
            Self::Token(reason) | Self::Refused(reason) => Error::Refused { store, reason },
            Self::NoLease => Error::Failed { store, reason: "requested lease not found".into() },
            Self::Failed(reason) => Error::Failed { store, reason },
        }
    }

    /// Says which member it was.
    pub(super) fn at(self, member: &str) -> Self {
        match self {
            Self::NotDone(reason) => Self::NotDone(format!("{member}: {reason}")),
            Self::Unknown(reason) => Self::Unknown(format!("{member}: {reason}")),
            Self::Permanent(reason) => Self::Permanent(format!("{member}: {reason}")),
            other => other,
        }
    }

    /// What a watch was cancelled for: etcd gives no code there.
    pub(super) fn cancelled(reason: &str) -> Self {
        let said = |what: &str| reason.contains(what);
        match () {
            // Before 3.4.22 etcd says this of an expired token, too.
            () if said("permission denied") || said("auth token") || said("auth store is old") => {
                Self::Token(reason.into())
            }
            () if said("user name is empty") => Self::Token(reason.into()),
            () => Self::Failed(reason.into()),
        }
    }
}

impl From<Status> for EtcdError {
    fn from(status: Status) -> Self {
        match status.source() {
            Some(source) => of_transport(&status, source),
            None => of_answer(&status),
        }
    }
}

fn of_answer(status: &Status) -> EtcdError {
    let reason = status.message().to_owned();
    let said = |what: &str| reason.contains(what);
    match status.code() {
        Code::Unauthenticated => EtcdError::Token(reason),
        Code::InvalidArgument if said("user name is empty") || said("auth store is old") => {
            EtcdError::Token(reason)
        }
        Code::InvalidArgument if said("authentication failed") => EtcdError::Refused(reason),
        Code::PermissionDenied => EtcdError::Refused(reason),
        Code::NotFound if said("lease not found") => EtcdError::NoLease,
        // Every request says that it needs a leader, so a member without one refuses it unseen.
        Code::Unavailable if said("no leader") => EtcdError::NotDone(reason),
        Code::ResourceExhausted if said("too many requests") => EtcdError::NotDone(reason),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted | Code::Unknown => {
            EtcdError::Unknown(reason)
        }
        Code::Internal if said("h2 protocol error") => EtcdError::Unknown(reason),
        _ => EtcdError::Failed(reason),
    }
}

fn of_transport(status: &Status, source: &(dyn StdError + 'static)) -> EtcdError {
    let mut reasons = vec![status.message().to_owned()];
    let mut connecting = false;
    let mut tls = false;
    let mut next = Some(source);
    while let Some(error) = next {
        let text = error.to_string();
        if !reasons.iter().any(|reason| reason.contains(&text)) {
            reasons.push(text);
        }
        connecting |= error.is::<ConnectError>();
        let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        tls |= inner.is_some_and(|inner| inner.is::<rustls::Error>());
        next = error.source();
    }
    let reason = reasons.join(": ");
    match () {
        () if is_about_identity(&reason) => EtcdError::Refused(reason),
        () if connecting && tls => EtcdError::Permanent(reason),
        () if connecting => EtcdError::NotDone(reason),
        () => EtcdError::Unknown(reason),
    }
}

/// The alerts with which a peer rejects our certificate during the handshake: no request was sent then. The alert
/// arrives here as text only.
const IDENTITY_ALERTS: [AlertDescription; 10] = [
    AlertDescription::NoCertificate,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::CertificateRequired,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
    AlertDescription::HandshakeFailure,
];

fn is_about_identity(reason: &str) -> bool {
    IDENTITY_ALERTS.iter().any(|alert| reason.contains(&rustls::Error::AlertReceived(*alert).to_string()))
}
