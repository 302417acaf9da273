//! Certificate signing requests, of which only the proven public key is used.

use rcgen::{PublicKeyData, SubjectPublicKeyInfo};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519, Oid};
use x509_parser::prelude::FromDer;

use crate::{Error, Result};

const MAX_PEM_BYTES: usize = 16 * 1024;

/// A public key whose holder proved to have the private one.
///
/// It is read from a PKCS#10 request of which nothing else is kept: no name, extension or lifetime
/// asked for there can reach a certificate.
#[derive(Debug, Clone)]
pub struct SigningRequest {
    public_key: SubjectPublicKeyInfo,
}

impl SigningRequest {
    /// Takes one PEM `CERTIFICATE REQUEST` with a P-256, P-384 or Ed25519 key and a valid signature.
    pub fn from_pem(pem: &str) -> Result<Self> {
        if pem.len() > MAX_PEM_BYTES {
            return refused(&format!("it has {} bytes; at most {MAX_PEM_BYTES} are allowed", pem.len()));
        }
        let mut requests = CertificateSigningRequestDer::pem_slice_iter(pem.as_bytes());
        let (Some(Ok(der)), None) = (requests.next(), requests.next()) else {
            return refused("expected one PEM block, CERTIFICATE REQUEST");
        };
        let Ok((rest, request)) = X509CertificationRequest::from_der(&der) else {
            return refused("it is not PKCS#10");
        };
        if !rest.is_empty() {
            return refused("it has bytes behind its end");
        }
        let spki = request.certification_request_info.subject_pki.raw;
        let public_key = SubjectPublicKeyInfo::from_der(spki).ok();
        let Some(public_key) = public_key.filter(|key| signs_as(key, &request.signature_algorithm.algorithm))
        else {
            return refused("its key or signature is of a kind not used here; make a P-256 key");
        };
        if request.verify_signature().is_err() {
            return refused("its signature does not prove that the sender has the private key");
        }
        Ok(Self { public_key })
    }

    /// The proven key.
    pub fn public_key(&self) -> &SubjectPublicKeyInfo {
        &self.public_key
    }
}

/// Whether a key of an accepted kind can have made a signature that says it is of this algorithm.
fn signs_as(key: &SubjectPublicKeyInfo, signature: &Oid<'_>) -> bool {
    let kind = key.algorithm();
    if *kind == rcgen::PKCS_ECDSA_P256_SHA256 || *kind == rcgen::PKCS_ECDSA_P384_SHA384 {
        return *signature == OID_SIG_ECDSA_WITH_SHA256 || *signature == OID_SIG_ECDSA_WITH_SHA384;
    }
    *kind == rcgen::PKCS_ED25519 && *signature == OID_SIG_ED25519
}

fn refused<T>(why: &str) -> Result<T> {
    Err(Error::Request(why.into()))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::pem::SectionKind;

    use super::*;
    use crate::PrivateKey;
    use crate::certificate::pem_block;

    fn refusal(pem: &str) -> String {
        SigningRequest::from_pem(pem).unwrap_err().to_string()
    }

    #[test]
    fn only_proven_keys_are_taken() {
        let good = PrivateKey::generate().unwrap().signing_request().unwrap();
        let parsed_key = SigningRequest::from_pem(&good).unwrap();

        let (_, der) = <(SectionKind, Vec<u8>)>::from_pem_slice(good.as_bytes()).unwrap();
        let pem = |der: &[u8]| pem_block("CERTIFICATE REQUEST", der);
        let (_, parsed) = X509CertificationRequest::from_der(&der).unwrap();
        let signed_end = 3 + parsed.certification_request_info.raw.len();
        for index in 0..der.len() {
            let mut altered = der.clone();
            altered[index] ^= 1;
            match SigningRequest::from_pem(&pem(&altered)) {
                Err(error) if index + 10 > der.len() => {
                    assert!(error.to_string().contains("does not prove"), "{index}: {error}");
                }
                Err(_) => {}
                // The wrapping is read leniently; what the signature covers is not.
                Ok(same) => {
                    assert!(index >= signed_end, "{index}");
                    assert_eq!(same.public_key, parsed_key.public_key);
                }
            }
        }
        assert!(refusal(&pem(&[der.as_slice(), &[0]].concat())).contains("behind its end"));
        assert!(refusal(&pem(&der[..der.len() - 1])).contains("PKCS#10"));
        assert!(refusal(&format!("{good}{good}")).contains("one PEM block"));
        assert!(refusal("").contains("one PEM block"));
        assert!(refusal(&"x".repeat(20_000)).contains("at most"));
    }

    #[test]
    fn kinds_of_keys() {
        let request = |kind| {
            let key = KeyPair::generate_for(kind).unwrap();
            CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap()
        };
        for kind in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
            SigningRequest::from_pem(&request(kind)).unwrap();
        }
        for kind in [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P521_SHA512] {
            assert!(refusal(&request(kind)).contains("make a P-256 key"));
        }
    }
}
