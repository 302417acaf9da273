//! Throwaway certificates for TLS tests of stores. Independent of the cluster's own authorities.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::scratch;

/// A certificate authority of its own with certificates for servers on loopback and for their
/// clients, as files: what a test of TLS needs.
#[derive(Debug)]
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Makes new ones that nobody else trusts.
    pub fn new() -> Self {
        let directory = scratch::directory();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        ca.distinguished_name.push(DnType::CommonName, "testbed");
        let key = KeyPair::generate().expect("a key");
        let certificate = ca.self_signed(&key).expect("a certificate");
        write(directory.path(), "ca.pem", &certificate.pem());
        let issuer = Issuer::new(ca, key);
        for name in ["server", "client"] {
            issue(directory.path(), &issuer, name);
        }
        Self { directory }
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The certificate of a server on `localhost`, `127.0.0.1` and `::1`.
    pub fn server_cert(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// Its key.
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// The certificate of a client.
    pub fn client_cert(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// Its key.
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

fn issue(directory: &Path, issuer: &Issuer<'_, KeyPair>, name: &str) {
    let names = ["localhost", "127.0.0.1", "::1"].map(String::from);
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    write(directory, &format!("{name}.pem"), &certificate.pem());
    write(directory, &format!("{name}.key"), &key.serialize_pem());
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).expect("a file in the test's directory");
}
