//! X.509 certificates as they are read: what one says, not whether it is to be trusted.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{ClusterName, Error, Principal, PrincipalError, Result};

/// A certificate that could be read. That says nothing about whether it is to be trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    not_before: Timestamp,
    not_after: Timestamp,
    serial: String,
    public_key: Vec<u8>,
    names: Vec<Name>,
    issuer_organization: Option<String>,
    is_authority: bool,
}

/// What the authority signs for one role of an agent, both over the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificates {
    /// The client certificate by which it speaks to the control plane.
    pub tls: Certificate,
    /// OpenSSH's host certificate, as one line.
    pub ssh: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Uri(String),
    /// A DNS name or IP address: where a server is reached.
    Address(String),
    Other(String),
}

impl Certificate {
    /// Reads exactly one PEM `CERTIFICATE`.
    pub fn from_pem(pem: &str) -> Result<Self> {
        let mut found = CertificateDer::pem_slice_iter(pem.as_bytes());
        match (found.next(), found.next()) {
            (Some(Ok(der)), None) => Self::from_der(&der),
            _ => Err(Error::Certificate("expected one PEM block, CERTIFICATE".into())),
        }
    }

    /// Reads the binary form.
    pub fn from_der(der: &CertificateDer<'_>) -> Result<Self> {
        Self::read(der).map_err(|reason| Error::Certificate(reason.into()))
    }

    fn read(der: &CertificateDer<'_>) -> std::result::Result<Self, &'static str> {
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| "it is not X.509")?;
        if !rest.is_empty() {
            return Err("it has bytes behind its end");
        }
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| "its dates are out of range");
        let names = parsed.subject_alternative_name().map_err(|_| "its names cannot be read")?;
        let constraints = parsed.basic_constraints().map_err(|_| "its constraints cannot be read")?;
        let mut organizations = parsed.issuer().iter_organization();
        Ok(Self {
            der: der.clone().into_owned(),
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            serial: HEXLOWER.encode(parsed.raw_serial()),
            public_key: parsed.public_key().raw.into(),
            names: names
                .map(|names| names.value.general_names.iter().map(Name::from).collect())
                .unwrap_or_default(),
            issuer_organization: organizations.next().and_then(|name| name.as_str().ok()).map(Into::into),
            is_authority: constraints.is_some_and(|constraints| constraints.value.ca),
        })
    }

    /// The binary form, as TLS sends it.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The text form, as files keep it.
    pub fn to_pem(&self) -> String {
        pem_block("CERTIFICATE", &self.der)
    }

    /// From when it is valid.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// Until when it is valid.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Its serial number in hex, to find it in the audit log.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Whether it says that its holder may sign others.
    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// The DER SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// Whom it says it speaks for. Only [`crate::Trust`] can tell whether that is true.
    pub fn principal(&self) -> Result<Principal, PrincipalError> {
        let uris = self.names.iter().filter_map(|name| match name {
            Name::Uri(uri) => Some(uri.as_str()),
            _ => None,
        });
        let principal = Principal::from_uris(uris)?;
        let is_server = matches!(principal, Principal::Server { .. });
        let unexpected = self.names.iter().find_map(|name| match name {
            Name::Other(name) => Some(name),
            Name::Address(name) if !is_server => Some(name),
            _ => None,
        });
        unexpected.map_or(Ok(principal), |name| Err(PrincipalError::Unexpected(name.clone())))
    }

    /// The cluster that it says it is of: a claim, for error messages only.
    pub fn claimed_cluster(&self) -> Option<ClusterName> {
        let principal = self.principal().ok().map(|principal| principal.cluster().clone());
        principal.or_else(|| self.issuer_organization.as_ref()?.parse().ok())
    }

    /// Whether the key of `authority` signed it, whenever it is or was valid.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        let (Ok((_, parsed)), Ok((_, authority))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der))
        else {
            return false;
        };
        parsed.issuer().as_raw() == authority.subject().as_raw()
            && parsed.verify_signature(Some(authority.public_key())).is_ok()
    }

    /// Whether its own key signed it.
    pub fn is_self_signed(&self) -> bool {
        self.is_signed_by(self)
    }
}

impl From<&GeneralName<'_>> for Name {
    fn from(name: &GeneralName<'_>) -> Self {
        match name {
            GeneralName::URI(uri) => Self::Uri((*uri).into()),
            GeneralName::DNSName(_) | GeneralName::IPAddress(_) => Self::Address(name.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("serial", &self.serial)
            .field("names", &self.names)
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

pub(crate) fn pem_block(label: &str, der: &[u8]) -> String {
    let mut pem = format!("-----BEGIN {label}-----\n");
    // 48 bytes are the 64 characters of a line.
    for line in der.chunks(48) {
        BASE64.encode_append(line, &mut pem);
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}
