//! The certificates that a server issues for itself: its TLS certificate and the local administrator's identity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_authority::{MAX_USER_TTL, Result, ServerCertificate};
use refit_identity::{Certificate, Identity, PrivateKey, Role, Roles, ServerId, SigningRequest, UserName};
use refit_types::DataDir;
use rustls::pki_types::ServerName;
use tokio::sync::watch;

use crate::authorities::Authorities;

/// A server's certificate is renewed long before it expires, so this only limits the use of a stolen copy.
const SERVER_TTL: Duration = Duration::from_secs(30 * 86_400);
/// How often expiry is checked.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
const ADMIN: &str = "admin";

/// What this server signs for itself: its TLS certificate, and the administrator's identity on this host.
pub(crate) struct OwnIdentities {
    authorities: Arc<Authorities>,
    id: ServerId,
    names: Vec<ServerName<'static>>,
    data_dir: DataDir,
    now: fn() -> Timestamp,
    key: PrivateKey,
    certificate: Certificate,
    signer: Certificate,
    pub(crate) shown: Arc<ServerCertificate>,
}

impl OwnIdentities {
    /// Creates what is missing and keeps what is still valid.
    pub(crate) fn prepare(
        authorities: Arc<Authorities>,
        id: ServerId,
        names: Vec<ServerName<'static>>,
        data_dir: DataDir,
        now: fn() -> Timestamp,
    ) -> Result<Self> {
        let key = PrivateKey::generate()?;
        let current = authorities.current();
        let authority = current.authority();
        let request = SigningRequest::from_pem(&key.signing_request()?)?;
        let certificate = authority.issue_server(&request, &id, &names, SERVER_TTL, now())?;
        let shown = Arc::new(ServerCertificate::new(&key, &certificate, authority)?);
        let signer = authority.server_certificate().clone();
        let own = Self { authorities, id, names, data_dir, now, key, certificate, signer, shown };
        own.ensure_admin()?;
        Ok(own)
    }

    /// Renews what expires soon, or what the current authorities did not sign, until the server stops.
    pub(crate) async fn keep_fresh(mut self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        let mut changes = self.authorities.subscribe();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = changes.changed() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if let Err(error) = self.renew() {
                tracing::error!(%error, "could not renew this server's certificates; retrying within the hour");
            }
        }
    }

    fn renew(&mut self) -> Result<()> {
        let current = self.authorities.current();
        let authority = current.authority();
        let is_old = self.signer.der() != authority.server_certificate().der();
        if is_old || ends_soon((self.now)(), self.certificate.not_after(), SERVER_TTL) {
            let request = SigningRequest::from_pem(&self.key.signing_request()?)?;
            let certificate =
                authority.issue_server(&request, &self.id, &self.names, SERVER_TTL, (self.now)())?;
            self.shown.replace(&self.key, &certificate, authority)?;
            tracing::info!(expires = %certificate.not_after(), "renewed this server's certificate");
            self.certificate = certificate;
            self.signer = authority.server_certificate().clone();
        }
        self.ensure_admin()
    }

    fn ensure_admin(&self) -> Result<()> {
        let path = self.data_dir.admin_identity();
        let current = self.authorities.current();
        let authority = current.authority();
        let trusted: Vec<Certificate> = authority.certificates().cloned().collect();
        let good = Identity::read(&path).is_ok_and(|identity| {
            identity.authorities() == trusted
                && identity.certificate().is_signed_by(authority.certificate())
                && !ends_soon((self.now)(), identity.expires(), MAX_USER_TTL)
        });
        if good {
            return Ok(());
        }
        let key = PrivateKey::generate()?;
        let request = SigningRequest::from_pem(&key.signing_request()?)?;
        let name: UserName = ADMIN.parse().map_err(refit_identity::Error::from)?;
        let roles = Roles::from(Role::Admin);
        let certificate = authority.issue_user(&request, &name, &roles, MAX_USER_TTL, (self.now)())?;
        let identity = Identity::new(ADMIN, key, certificate, trusted)?;
        identity.write(&path)?;
        tracing::info!(path = %path.display(), expires = %identity.expires(), "wrote the administrator's identity");
        Ok(())
    }
}

/// Whether less than a third of the whole time is left.
fn ends_soon(now: Timestamp, ends: Timestamp, whole: Duration) -> bool {
    let third = SignedDuration::try_from(whole / 3).unwrap_or(SignedDuration::ZERO);
    ends.duration_since(now) < third
}

/// The names under which clients may reach a server that listens there.
pub(crate) fn server_names(
    hostname: &str,
    listen: SocketAddr,
    public: &[ServerName<'static>],
) -> Vec<ServerName<'static>> {
    let mut names: Vec<ServerName<'static>> = public.to_vec();
    names.extend(
        ["localhost", hostname].into_iter().filter_map(|name| ServerName::try_from(name.to_owned()).ok()),
    );
    let addresses = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), listen.ip()];
    names.extend(addresses.into_iter().filter(|ip: &IpAddr| !ip.is_unspecified()).map(ServerName::from));
    names
}
