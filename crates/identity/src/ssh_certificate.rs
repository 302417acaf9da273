//! OpenSSH's host certificates as far as their holder checks them, and what their format is made of:
//! `PROTOCOL.certkeys` and RFC 4251, 5656, 8709. The server's authority signs them.

use data_encoding::BASE64;
use rcgen::SignatureAlgorithm;

use crate::{Error, PrivateKey, Result};

/// The type of Ed25519 keys, which SSH authorities have.
pub const ED25519: &str = "ssh-ed25519";
/// What the type of a key ends with when it is that of a certificate.
pub const CERTIFICATE_SUFFIX: &str = "-cert-v01@openssh.com";
/// What tells the certificate of a host from that of a user.
pub const HOST_CERTIFICATE: u32 = 2;

/// A type of key that OpenSSH and Refit both know.
#[derive(Debug)]
pub struct SshKeyType {
    /// Its name in OpenSSH.
    pub name: &'static str,
    /// The name of its curve, which is written beside keys of ECDSA.
    pub curve: Option<&'static str>,
    algorithm: &'static SignatureAlgorithm,
}

impl SshKeyType {
    /// The types that [`crate::SigningRequest`] takes.
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

    /// The type of a key of that algorithm.
    pub fn of(algorithm: &SignatureAlgorithm) -> Option<&'static Self> {
        const { &Self::ALL }.iter().find(|key_type| key_type.algorithm == algorithm)
    }
}

/// Whether `line` is a host certificate over the public half of `key`. Who signed it is not looked at:
/// that is for those who speak to the host.
pub fn check_certifies(line: &str, key: &PrivateKey) -> Result<()> {
    let refused = |why| Error::SshCertificate(why);
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(body)) = (words.next(), words.next()) else {
        return Err(refused("expected a line with its kind and its text in base64"));
    };
    let key_type = name
        .strip_suffix(CERTIFICATE_SUFFIX)
        .and_then(|name| SshKeyType::ALL.iter().find(|key_type| key_type.name == name));
    let key_type = key_type.ok_or_else(|| refused("it is not an OpenSSH certificate of a kind used here"))?;
    let blob = BASE64.decode(body.as_bytes()).map_err(|_| refused("it is not base64"))?;
    let cut_off = || refused("it is cut off");
    let mut rest = blob.as_slice();
    if string(&mut rest).ok_or_else(cut_off)? != name.as_bytes() {
        return Err(refused("its line and its text are of different kinds"));
    }
    string(&mut rest).ok_or_else(cut_off)?;
    if key_type.curve.is_some() {
        string(&mut rest).ok_or_else(cut_off)?;
    }
    let certified = string(&mut rest).ok_or_else(cut_off)?;
    // Behind the key come a serial number of 8 bytes and whether it is for users or for hosts.
    let is_host = rest.get(8..12).ok_or_else(cut_off)? == HOST_CERTIFICATE.to_be_bytes();
    if !is_host {
        return Err(refused("it is not one for a host"));
    }
    if certified != key.pair().public_key_raw() {
        return Err(Error::KeyMismatch);
    }
    Ok(())
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let (bytes, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = behind;
    Some(bytes)
}
