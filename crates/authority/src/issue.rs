//! What the authority signs: certificates for users, servers and hosts, and for how long.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose,
    SanType, SerialNumber,
};
use refit_identity::{
    Certificate, HOST_TTL, HostCertificates, Principal, Roles, SERVER_NAME, ServerId, SigningRequest,
    UserName,
};
use refit_types::{AgentRole, HostId};
use rustls::pki_types::ServerName;

use crate::record::AuthorityKey;
use crate::ssh::HostCertificate;
use crate::validity::Validity;
use crate::{Authority, Error, Result};

/// The shortest life of a certificate: below this, clocks that differ make it useless.
pub const MIN_TTL: Duration = Duration::from_secs(60);

/// The longest life of a user's certificate, as nothing but its end takes it back.
pub const MAX_USER_TTL: Duration = Duration::from_secs(90 * 86_400);

impl Authority {
    /// Signs a client certificate for a user. Of the request only the public key is used.
    ///
    /// It is valid from [`crate::CLOCK_SKEW`] ago and never longer than the authority itself.
    pub fn issue_user(
        &self,
        request: &SigningRequest,
        name: &UserName,
        roles: &Roles,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Certificate> {
        if !(MIN_TTL..=MAX_USER_TTL).contains(&ttl) {
            return Err(Error::Ttl { asked: ttl, min: MIN_TTL, max: Some(MAX_USER_TTL) });
        }
        let principal =
            Principal::User { cluster: self.cluster().clone(), name: name.clone(), roles: roles.clone() };
        self.sign(self.signing(), request, &principal, Vec::new(), ttl, now)
    }

    /// Signs a server certificate for a server of the control plane, reachable at `names` and known to
    /// clients by [`SERVER_NAME`]. Of the request only the public key is used.
    pub fn issue_server(
        &self,
        request: &SigningRequest,
        id: &ServerId,
        names: &[ServerName<'_>],
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Certificate> {
        if ttl < MIN_TTL {
            return Err(Error::Ttl { asked: ttl, min: MIN_TTL, max: None });
        }
        let mut addresses = vec![dns_name(SERVER_NAME)?];
        for name in names {
            let address = address(name)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let principal = Principal::Server { cluster: self.cluster().clone(), id: id.clone() };
        let by = self.server_signing();
        self.sign(by, request, &principal, addresses, ttl, now)
    }

    /// Signs what an agent needs for one role: a client certificate for TLS and a host certificate for
    /// SSH, valid for the same time. Of the request only the public key is used.
    pub fn issue_host(
        &self,
        request: &SigningRequest,
        id: HostId,
        role: AgentRole,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<HostCertificates> {
        if !(MIN_TTL..=HOST_TTL).contains(&ttl) {
            return Err(Error::Ttl { asked: ttl, min: MIN_TTL, max: Some(HOST_TTL) });
        }
        let cluster = self.cluster().clone();
        let name = format!("{id}.{cluster}");
        let principal = Principal::Host { cluster, id, role };
        let by = self.signing();
        let tls = self.sign(by, request, &principal, Vec::new(), ttl, now)?;
        let certificate = HostCertificate {
            public_key: request.public_key(),
            key_id: format!("{name}:{role}"),
            principals: &[id.to_string(), name],
            not_before: tls.not_before(),
            not_after: tls.not_after(),
        };
        let ssh = by.ssh.sign(&certificate)?;
        Ok(HostCertificates { tls, ssh })
    }

    fn sign(
        &self,
        by: &AuthorityKey,
        request: &SigningRequest,
        principal: &Principal,
        addresses: Vec<SanType>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Certificate> {
        let end = by.certificate.not_after();
        if end <= now {
            return Err(Error::AuthorityExpired { cluster: self.cluster().clone(), at: end });
        }
        let mut params = CertificateParams::default();
        Validity::of_leaf(now, ttl, end)?.apply(&mut params)?;
        params.serial_number = Some(new_serial()?);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, self.cluster().as_str());
        params.distinguished_name.push(DnType::CommonName, principal.name());
        params.subject_alt_names = addresses;
        for uri in principal.uris() {
            params.subject_alt_names.push(SanType::URI(uri.try_into().map_err(sign_failed)?));
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match principal {
            Principal::Server { .. } => ExtendedKeyUsagePurpose::ServerAuth,
            Principal::User { .. } | Principal::Host { .. } => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        by.sign(&params, request)
    }
}

impl AuthorityKey {
    pub(crate) fn sign(&self, params: &CertificateParams, request: &SigningRequest) -> Result<Certificate> {
        let issuer =
            Issuer::from_ca_cert_der(self.certificate.der(), self.key.pair()).map_err(sign_failed)?;
        let signed = params.signed_by(request.public_key(), &issuer).map_err(sign_failed)?;
        Ok(Certificate::from_der(signed.der())?)
    }
}

fn dns_name(name: &str) -> Result<SanType> {
    Ok(SanType::DnsName(name.try_into().map_err(sign_failed)?))
}

fn address(name: &ServerName<'_>) -> Result<SanType> {
    match name {
        ServerName::DnsName(name) => dns_name(name.as_ref()),
        ServerName::IpAddress(address) => Ok(SanType::IpAddress((*address).into())),
        _ => Err(Error::Crypto("naming a server")),
    }
}

/// 128 random bits, so that no two certificates share a number and none can be foreseen.
pub(crate) fn new_serial() -> Result<SerialNumber> {
    Ok(SerialNumber::from_slice(&random_bytes::<16>()?))
}

/// Unpredictable bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| Error::Crypto("making a random number"))?;
    Ok(bytes)
}

pub(crate) fn sign_failed(_: rcgen::Error) -> Error {
    Error::Crypto("signing a certificate")
}
