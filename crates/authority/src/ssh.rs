//! The half of an authority that signs OpenSSH host certificates: `PROTOCOL.certkeys` and RFC 4251, 5656,
//! 8709. What a host checks of them is in `refit_identity::ssh_certificate`.

use std::fmt;

use data_encoding::BASE64;
use jiff::Timestamp;
use rcgen::{PublicKeyData, SigningKey, SubjectPublicKeyInfo};
use refit_identity::PrivateKey;
use refit_identity::ssh_certificate::{CERTIFICATE_SUFFIX, ED25519, HOST_CERTIFICATE, SshKeyType};

use crate::issue::random_bytes;
use crate::{Error, Result};

/// The half of an authority that signs for SSH.
#[derive(Clone)]
pub(crate) struct SshAuthority(PrivateKey);

/// What a host certificate says.
pub(crate) struct HostCertificate<'a> {
    pub(crate) public_key: &'a SubjectPublicKeyInfo,
    /// What sshd writes into its log.
    pub(crate) key_id: String,
    /// The names under which clients may reach the host.
    pub(crate) principals: &'a [String],
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl SshAuthority {
    /// Takes only the kind of key that [`SshAuthority::sign`] can write down.
    pub(crate) fn new(key: PrivateKey) -> Result<Self> {
        if *key.pair().algorithm() == rcgen::PKCS_ED25519 {
            Ok(Self(key))
        } else {
            Err(refit_identity::Error::PrivateKey.into())
        }
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.0
    }

    pub(crate) fn to_authorized_key(&self) -> String {
        format!("{ED25519} {}", BASE64.encode(&self.public_key()))
    }

    fn public_key(&self) -> Vec<u8> {
        Blob::default().string(ED25519).string(self.0.pair().public_key_raw()).0
    }

    /// Signs a host certificate and writes it as one line.
    pub(crate) fn sign(&self, certificate: &HostCertificate<'_>) -> Result<String> {
        let kind = SshKeyType::of(certificate.public_key.algorithm()).ok_or(Error::Crypto("naming a key"))?;
        let name = format!("{}{CERTIFICATE_SUFFIX}", kind.name);
        let principals = certificate.principals.iter().fold(Blob::default(), |all, name| all.string(name));
        let seconds = |at: Timestamp| u64::try_from(at.as_second()).map_err(|_| Error::Clock(at));
        let key = Blob::default().string(&name).string(random_bytes::<32>()?);
        let key = if let Some(curve) = kind.curve { key.string(curve) } else { key };
        let unsigned = key
            .string(certificate.public_key.der_bytes())
            .u64(u64::from_be_bytes(random_bytes()?))
            .u32(HOST_CERTIFICATE)
            .string(&certificate.key_id)
            .string(principals.0)
            .u64(seconds(certificate.not_before)?)
            .u64(seconds(certificate.not_after)?)
            .string("") // critical options
            .string("") // extensions
            .string("") // reserved
            .string(self.public_key());
        let signature =
            self.0.pair().sign(&unsigned.0).map_err(|_| Error::Crypto("signing a certificate"))?;
        let signature = Blob::default().string(ED25519).string(signature);
        Ok(format!("{name} {}", BASE64.encode(&unsigned.string(signature.0).0)))
    }
}

impl fmt::Debug for SshAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SshAuthority({})", self.to_authorized_key())
    }
}

#[derive(Default)]
struct Blob(Vec<u8>);

impl Blob {
    fn string(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let mut blob = self.u32(bytes.len() as u32);
        blob.0.extend_from_slice(bytes);
        blob
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }
}
