//! A key with its certificate and the authorities to trust, in JSON and in a private file.

use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    CaPin, Certificate, ClusterName, Error, HostCertificates, Principal, PrivateKey, Result, private_file,
    secret_json, ssh_certificate,
};

const KIND: &str = "identity";
const VERSION: &str = "v2";

/// What a person or machine holds to speak to a cluster: its key, its certificate and whom it trusts.
///
/// Its principal is what its own certificate says, which is a server's to verify.
#[derive(Debug, Clone)]
pub struct Identity {
    name: String,
    principal: Principal,
    key: PrivateKey,
    certificate: Certificate,
    authorities: Vec<Certificate>,
    ssh: Ssh,
}

/// The SSH half, which only hosts have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ssh {
    certificate: String,
    authorities: Vec<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Spec<'a> {
    key: String,
    ssh_cert: &'a str,
    tls_cert: String,
    tls_ca_certs: Vec<String>,
    ssh_ca_certs: &'a [String],
}

impl Identity {
    /// Joins what its holder made and what the authority answered, if they belong together.
    pub fn new(
        name: impl Into<String>,
        key: PrivateKey,
        certificate: Certificate,
        authorities: impl IntoIterator<Item = Certificate>,
    ) -> Result<Self> {
        let authorities: Vec<Certificate> = authorities.into_iter().collect();
        if !key.belongs_to(&certificate) {
            return Err(Error::KeyMismatch);
        }
        if authorities.is_empty() {
            return Err(Error::Identity("it has no CA certificate to know its cluster by".into()));
        }
        if !authorities.iter().all(Certificate::is_authority) {
            return Err(Error::Identity("one of its CA certificates is not one of an authority".into()));
        }
        let principal = certificate.principal()?;
        Ok(Self { name: name.into(), principal, key, certificate, authorities, ssh: Ssh::default() })
    }

    /// Joins what an agent made for one role and what the authority answered, if they belong together.
    pub fn for_host(
        name: impl Into<String>,
        key: PrivateKey,
        certificates: HostCertificates,
        authorities: impl IntoIterator<Item = Certificate>,
        ssh_authorities: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let identity = Self::new(name, key, certificates.tls, authorities)?;
        if !matches!(identity.principal, Principal::Host { .. }) {
            return Err(Error::Identity("it is not one of a host".into()));
        }
        let authorities: Vec<String> = ssh_authorities.into_iter().collect();
        identity.with_ssh(Ssh { certificate: certificates.ssh, authorities })
    }

    /// The same identity by another name and with other authorities to know its cluster by.
    pub fn with_authorities(
        &self,
        name: impl Into<String>,
        authorities: impl IntoIterator<Item = Certificate>,
        ssh_authorities: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let identity = Self::new(name, self.key.clone(), self.certificate.clone(), authorities)?;
        let authorities: Vec<String> = ssh_authorities.into_iter().collect();
        identity.with_ssh(Ssh { certificate: self.ssh.certificate.clone(), authorities })
    }

    fn with_ssh(self, ssh: Ssh) -> Result<Self> {
        if matches!(self.principal, Principal::Host { .. }) {
            ssh_certificate::check_certifies(&ssh.certificate, &self.key)?;
            if ssh.authorities.is_empty() {
                return Err(Error::Identity("it has no SSH authority to know its cluster by".into()));
            }
        }
        Ok(Self { ssh, ..self })
    }

    /// Reads the JSON form. No message repeats any of it but names.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let document = secret_json::parse(text).map_err(Error::Identity)?;
        secret_json::expect(&document, KIND, VERSION).map_err(Error::Identity)?;
        let field = |path| secret_json::text(&document, path).map_err(Error::Identity);
        let fields = |path| secret_json::texts(&document, path).map_err(Error::Identity);
        let key = PrivateKey::from_pem(field("spec.key")?).map_err(within("spec.key"))?;
        let certificate = Certificate::from_pem(field("spec.tls_cert")?).map_err(within("spec.tls_cert"))?;
        let authorities = fields("spec.tls_ca_certs")?.into_iter().map(Certificate::from_pem);
        let authorities = authorities.collect::<Result<Vec<_>>>().map_err(within("spec.tls_ca_certs"))?;
        let ssh = Ssh {
            certificate: field("spec.ssh_cert")?.into(),
            authorities: fields("spec.ssh_ca_certs")?.into_iter().map(Into::into).collect(),
        };
        Self::new(field("metadata.name")?, key, certificate, authorities)?.with_ssh(ssh)
    }

    /// The JSON form, private key included: for a place that only its holder can read.
    pub fn to_json(&self) -> Result<String> {
        let document = Document {
            kind: KIND,
            version: VERSION,
            metadata: Metadata { name: &self.name },
            spec: Spec {
                key: self.key.to_pem(),
                ssh_cert: &self.ssh.certificate,
                tls_cert: self.certificate.to_pem(),
                tls_ca_certs: self.authorities.iter().map(Certificate::to_pem).collect(),
                ssh_ca_certs: &self.ssh.authorities,
            },
        };
        serde_json::to_string(&document).map_err(|_| Error::Identity("it cannot be written as JSON".into()))
    }

    /// Reads an identity file, and refuses one that others than its owner can read.
    pub fn read(path: &Path) -> Result<Self> {
        let text = private_file::read_private_file(path)?;
        Self::from_json(&text).map_err(|reason| Error::IdentityFile {
            path: path.into(),
            reason: match reason {
                Error::Identity(reason) => reason,
                other => other.to_string(),
            },
        })
    }

    /// Writes the identity to a file that only its owner can read, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.to_json()?;
        private_file::write_private_file(path, format!("{text}\n").as_bytes())
    }

    /// What its holder calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whom it speaks for.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The cluster it is of.
    pub fn cluster(&self) -> &ClusterName {
        self.principal.cluster()
    }

    /// When it ends, to renew it before.
    pub fn expires(&self) -> Timestamp {
        self.certificate.not_after()
    }

    /// Its certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The authorities it knows its cluster by.
    pub fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }

    /// The one of them that signed it, among all that a rotation has it trust; nothing once that one is not
    /// trusted any more.
    pub fn issuer(&self) -> Option<CaPin> {
        self.authorities.iter().find(|authority| self.certificate.is_signed_by(authority)).map(CaPin::of)
    }

    /// Its SSH host certificate as one line of OpenSSH's form; users and servers have none.
    pub fn ssh_certificate(&self) -> Option<&str> {
        Some(self.ssh.certificate.as_str()).filter(|certificate| !certificate.is_empty())
    }

    /// The SSH authorities it knows its cluster by, in the form of `authorized_keys`.
    pub fn ssh_authorities(&self) -> &[String] {
        &self.ssh.authorities
    }

    /// Its private key.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }
}

fn within(path: &'static str) -> impl Fn(Error) -> Error {
    move |error| Error::Identity(format!("{path}: {error}"))
}
