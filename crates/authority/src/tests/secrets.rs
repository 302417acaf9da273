//! Nothing that is printed shows a private key.

use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;

use super::{authority, noon, request, server_at, user};
use crate::{ServerCertificate, server_config};
use refit_identity::{PrivateKey, client_config, pinned_client_config};

/// Whether a text has a piece of the key in it: as PEM, or as bytes in decimal or hex.
fn shows(text: &str, key: &PrivateKey) -> bool {
    let PrivateKeyDer::Pkcs8(der) = key.der() else { panic!("not PKCS#8") };
    // Where PKCS#8 has the private number of a P-256 key, and of an Ed25519 key.
    let start = if key.pair().public_key_raw().len() == 32 { 16 } else { 36 };
    let secret = &der.secret_pkcs8_der()[start..start + 32];
    let decimal = format!("{:?}", &secret[..6]);
    let hex = data_encoding::HEXLOWER.encode(&secret[..6]);
    let dense: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pem = key.to_pem();
    pem.lines().filter(|line| !line.starts_with('-')).any(|line| text.contains(&line[..16.min(line.len())]))
        || dense.contains(decimal.trim_matches(['[', ']']))
        || text.to_lowercase().contains(&hex)
}

#[test]
fn nothing_shows_a_private_key() {
    let authority = authority("prod");
    let identity = user(&authority);
    let (server_key, certificate) = server_at(&authority, noon());
    let server = Arc::new(ServerCertificate::new(&server_key, &certificate, &authority).unwrap());
    let shown = [
        format!("{:?} {:#?}", identity, identity),
        format!("{:?} {:#?}", identity.key(), authority.signing()),
        format!("{:?} {:#?}", authority, authority),
        format!("{:?} {:#?}", server, request(&server_key)),
        format!("{:?} {:?}", authority.trust().unwrap(), certificate),
        format!("{:?}", client_config(&identity).unwrap()),
        format!("{:?}", pinned_client_config(authority.pin()).unwrap()),
        format!("{:?}", server_config(server).unwrap()),
        ServerCertificate::new(identity.key(), &certificate, &authority).unwrap_err().to_string(),
    ];
    for text in &shown {
        for key in [identity.key(), &server_key, &authority.signing().key, authority.signing().ssh.key()] {
            assert!(!shows(text, key), "{text}");
        }
    }
    assert!(
        shows(&identity.to_json().unwrap().replace("\\n", "\n"), identity.key()),
        "the test itself works"
    );
    assert!(
        shows(&format!("{:?}", identity.key().der().secret_der()), identity.key()),
        "the test itself works"
    );
}
