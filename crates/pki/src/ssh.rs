//! OpenSSH's formats, as far as host certificates need them: `PROTOCOL.certkeys` and RFC 4251, 5656, 8709.

use std::fmt;

use data_encoding::BASE64;
use jiff::Timestamp;
use rcgen::{PublicKeyData, SignatureAlgorithm, SigningKey, SubjectPublicKeyInfo};

use crate::issue::random_bytes;
use crate::{Error, PrivateKey, Result};

const ED25519: &str = "ssh-ed25519";
const CERTIFICATE: &str = "-cert-v01@openssh.com";
const HOST: u32 = 2;

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
        if *key.pair().algorithm() == rcgen::PKCS_ED25519 { Ok(Self(key)) } else { Err(Error::PrivateKey) }
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
        let kind = Kind::of(certificate.public_key.algorithm()).ok_or(Error::Crypto("naming a key"))?;
        let name = format!("{}{CERTIFICATE}", kind.name);
        let principals = certificate.principals.iter().fold(Blob::default(), |all, name| all.string(name));
        let seconds = |at: Timestamp| u64::try_from(at.as_second()).map_err(|_| Error::Clock(at));
        let key = Blob::default().string(&name).string(random_bytes::<32>()?);
        let key = if let Some(curve) = kind.curve { key.string(curve) } else { key };
        let unsigned = key
            .string(certificate.public_key.der_bytes())
            .u64(u64::from_be_bytes(random_bytes()?))
            .u32(HOST)
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

/// Whether `line` is a host certificate over the public half of `key`. Who signed it is not looked at:
/// that is for those who speak to the host.
pub(crate) fn check_certifies(line: &str, key: &PrivateKey) -> Result<()> {
    let refused = |why| Error::SshCertificate(why);
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(body)) = (words.next(), words.next()) else {
        return Err(refused("expected a line with its kind and its text in base64"));
    };
    let kind =
        name.strip_suffix(CERTIFICATE).and_then(|name| Kind::ALL.iter().find(|kind| kind.name == name));
    let kind = kind.ok_or_else(|| refused("it is not an OpenSSH certificate of a kind used here"))?;
    let blob = BASE64.decode(body.as_bytes()).map_err(|_| refused("it is not base64"))?;
    let cut_off = || refused("it is cut off");
    let mut rest = blob.as_slice();
    if string(&mut rest).ok_or_else(cut_off)? != name.as_bytes() {
        return Err(refused("its line and its text are of different kinds"));
    }
    string(&mut rest).ok_or_else(cut_off)?;
    if kind.curve.is_some() {
        string(&mut rest).ok_or_else(cut_off)?;
    }
    let certified = string(&mut rest).ok_or_else(cut_off)?;
    // Behind the key come a serial number of 8 bytes and whether it is for users or for hosts.
    let is_host = rest.get(8..12).ok_or_else(cut_off)? == HOST.to_be_bytes();
    if !is_host {
        return Err(refused("it is not one for a host"));
    }
    if certified != key.pair().public_key_raw() {
        return Err(Error::KeyMismatch);
    }
    Ok(())
}

struct Kind {
    name: &'static str,
    curve: Option<&'static str>,
    algorithm: &'static SignatureAlgorithm,
}

impl Kind {
    /// The kinds that [`crate::SigningRequest`] takes.
    const ALL: [Self; 3] = [
        Self {
            name: "ecdsa-sha2-nistp256",
            curve: Some("nistp256"),
            algorithm: &rcgen::PKCS_ECDSA_P256_SHA256,
        },
        Self {
            name: "ecdsa-sha2-nistp384",
            curve: Some("nistp384"),
            algorithm: &rcgen::PKCS_ECDSA_P384_SHA384,
        },
        Self { name: ED25519, curve: None, algorithm: &rcgen::PKCS_ED25519 },
    ];

    fn of(algorithm: &SignatureAlgorithm) -> Option<&'static Self> {
        const { &Self::ALL }.iter().find(|kind| kind.algorithm == algorithm)
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

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let (bytes, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = behind;
    Some(bytes)
}
