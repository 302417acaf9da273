//! Private keys: made, read, and never shown.

use std::fmt;
use std::sync::Arc;

use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Certificate, Error, Result};

/// A private key. It is never printed: [`PrivateKey::to_pem`] gives it out to be stored, [`PrivateKey::der`]
/// for TLS.
#[derive(Clone)]
pub struct PrivateKey(Arc<KeyPair>);

impl PrivateKey {
    /// Makes a new ECDSA P-256 key, the kind that everything in a cluster uses.
    pub fn generate() -> Result<Self> {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256);
        pair.map(|pair| Self(Arc::new(pair))).map_err(|_| Error::Crypto("making a key"))
    }

    /// Makes a new Ed25519 key, the kind that every version of OpenSSH in use takes for an authority.
    pub fn generate_for_ssh() -> Result<Self> {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ED25519);
        pair.map(|pair| Self(Arc::new(pair))).map_err(|_| Error::Crypto("making a key"))
    }

    /// Reads one key. The error does not repeat the text, which may be part of a key.
    pub fn from_pem(pem: &str) -> Result<Self> {
        let mut keys = PrivateKeyDer::pem_slice_iter(pem.as_bytes());
        let (Some(Ok(der)), None) = (keys.next(), keys.next()) else { return Err(Error::PrivateKey) };
        let pair = KeyPair::try_from(&der).map_err(|_| Error::PrivateKey)?;
        Ok(Self(Arc::new(pair)))
    }

    /// The key itself, for a place that only its holder can read.
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A signing request for this key, in PEM. It names no subject: the authority decides whom it certifies.
    pub fn signing_request(&self) -> Result<String> {
        let failed = |_| Error::Crypto("making a signing request");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.serialize_request(self.0.as_ref()).and_then(|request| request.pem()).map_err(failed)
    }

    /// Whether `certificate` was made for this key.
    pub fn belongs_to(&self, certificate: &Certificate) -> bool {
        self.0.subject_public_key_info() == certificate.public_key()
    }

    /// The pair itself, to sign with.
    pub fn pair(&self) -> &KeyPair {
        &self.0
    }

    /// The key itself, as TLS takes it.
    pub fn der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.serialize_der()).into()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let key = PrivateKey::generate().unwrap();
        let again = PrivateKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(key.0.subject_public_key_info(), again.0.subject_public_key_info());
    }

    #[test]
    fn other_text_is_not_repeated() {
        let pem = PrivateKey::generate().unwrap().to_pem();
        let body = pem.lines().nth(1).unwrap();
        for bad in ["", "x", &pem[..pem.len() / 2], &pem.replace("PRIVATE", "PUBLIC"), &format!("{pem}{pem}")]
        {
            let error = PrivateKey::from_pem(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(&body[..16]), "{error:?}");
        }
    }
}
