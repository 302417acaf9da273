//! The service that signs identities for people, and codes for the dashboard.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::SharedBackend;
use refit_identity::{CaPin, Certificate, Principal, Role, Roles, SigningRequest, UserName};
use refit_proto::auth::v1 as wire;
use refit_proto::auth::v1::auth_service_server::AuthService;
use tonic::{Request, Response, Status};

use super::{store_status, timestamp};
use crate::access::caller;
use crate::authorities::Authorities;
use crate::events::{Event, Events};
use crate::issued_identities;
use crate::web::{Bearer, Sessions, SignInError};

/// Signs identities for people, and lets them in to the dashboard.
#[derive(Clone)]
pub(crate) struct Auth {
    pub(crate) backend: SharedBackend,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) events: Arc<Events>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) now: fn() -> Timestamp,
}

#[tonic::async_trait]
impl AuthService for Auth {
    async fn sign_user(
        &self,
        request: Request<wire::SignUserRequest>,
    ) -> Result<Response<wire::SignUserResponse>, Status> {
        let by = caller(&request)?.clone();
        let request = request.into_inner();
        let invalid = |field: &str, error: &dyn std::fmt::Display| {
            Status::invalid_argument(format!("{field}: {error}"))
        };
        let user = UserName::from_str(&request.user).map_err(|error| invalid("user", &error))?;
        let roles = request.roles.iter().map(|role| Role::from_str(role));
        let roles = roles.collect::<Result<Vec<_>, _>>().map_err(|error| invalid("roles", &error))?;
        let roles = Roles::new(roles).map_err(|error| invalid("roles", &error))?;
        let ttl = request.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
        let ttl = ttl.ok_or_else(|| invalid("ttl", &"expected how long the identity is to be good for"))?;
        let csr = SigningRequest::from_pem(&request.certificate_request)
            .map_err(|error| invalid("certificate_request", &error))?;
        let current = self.authorities.current();
        let authority = current.authority();
        let signed = authority.issue_user(&csr, &user, &roles, ttl, (self.now)());
        let certificate = signed.map_err(|error| match error {
            refit_authority::Error::Ttl { .. } => invalid("ttl", &error),
            other => Status::internal(other.to_string()),
        })?;
        let signer = CaPin::of(authority.certificate());
        let (serial, until) = (certificate.serial(), certificate.not_after());
        let message =
            format!("signed an identity with the roles {roles}, good until {until}, serial {serial}");
        let event = Event::new("identity.signed", by.name(), format!("user/{user}"), message);
        let entry = self.events.entry(event).map_err(store_status)?;
        let noted =
            issued_identities::note(&self.backend, user.as_str(), &certificate, signer, &[entry]).await;
        noted.map_err(store_status)?;
        tracing::info!(
            target: "audit", by = by.name(), from = %by.peer.address, %user, %roles,
            serial = certificate.serial(), expires = %certificate.not_after(), "signed an identity"
        );
        Ok(Response::new(wire::SignUserResponse {
            tls_cert: certificate.to_pem(),
            tls_ca_certs: authority.certificates().map(Certificate::to_pem).collect(),
            expires: Some(timestamp(certificate.not_after())),
        }))
    }

    async fn create_web_login(
        &self,
        request: Request<wire::CreateWebLoginRequest>,
    ) -> Result<Response<wire::CreateWebLoginResponse>, Status> {
        let by = caller(&request)?.clone();
        let (Some(Principal::User { name, .. }), Some(expires)) = (by.principal(), by.peer.expires()) else {
            return Err(Status::permission_denied("only people sign in to the dashboard"));
        };
        let ttl = request.into_inner().ttl.map(Duration::try_from).transpose();
        let ttl = ttl.map_err(|_| Status::invalid_argument(SignInError::Ttl.to_string()))?;
        let bearer = Bearer { user: name.as_str(), chain: by.peer.chain(), expires };
        let made = self.sessions.invite(bearer, ttl).await;
        let made = made.map_err(|error| match error {
            SignInError::Store(error) => store_status(error),
            other => Status::invalid_argument(other.to_string()),
        })?;
        tracing::info!(target: "audit", by = by.name(), from = %by.peer.address, "made a code for the dashboard");
        Ok(Response::new(wire::CreateWebLoginResponse {
            code: made.secret,
            expires: Some(timestamp(made.expires)),
            session_expires: Some(timestamp(made.session_expires)),
        }))
    }
}
