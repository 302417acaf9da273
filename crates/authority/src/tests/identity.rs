//! Identity files: written privately, read back, and refused when they are exposed or do not fit.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::noon;
use super::{authority, server_at, user};
use refit_identity::{CaPin, Certificate, Error, Identity, PrivateKey};

#[test]
fn an_identity_reads_back() {
    let authority = authority("prod");
    let identity = user(&authority);
    let document: Value = serde_json::from_str(&identity.to_json().unwrap()).unwrap();
    assert_eq!(
        document,
        json!({
            "kind": "identity", "version": "v2", "metadata": {"name": "alice"},
            "spec": {
                "key": identity.key().to_pem(),
                "ssh_cert": "",
                "tls_cert": identity.certificate().to_pem(),
                "tls_ca_certs": [authority.certificate().to_pem()],
                "ssh_ca_certs": [],
            },
        })
    );

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("identity.json");
    identity.write(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let read = Identity::read(&path).unwrap();
    assert_eq!(read.to_json().unwrap(), identity.to_json().unwrap());
    assert_eq!(read.principal(), identity.principal());
    assert_eq!((read.cluster().as_str(), read.name()), ("prod", "alice"));
    assert_eq!(read.expires(), identity.certificate().not_after());

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = Identity::read(&path).unwrap_err();
    assert!(matches!(error, Error::Exposed { .. }), "{error}");
    assert!(
        error.to_string().ends_with(&format!(
            "(its mode is 0644), and so could the private key in it; run: chmod 600 {}",
            path.display()
        )),
        "{error}"
    );

    fs::write(&path, "{}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = Identity::read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("the identity in {} cannot be used: kind is missing", path.display()));
    let error = Identity::read(&directory.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none cannot be read: No such file"), "{error}");
}

#[test]
fn its_issuer_is_the_one_that_signed_it_wherever_that_is_among_the_trusted() {
    let (old, new) = (authority("prod"), authority("prod"));
    let identity = user(&old);
    let [old, new] = [&old, &new].map(|authority| authority.certificate().clone());
    let issuer = |authorities: &[&Certificate]| {
        let authorities = authorities.iter().map(|authority| (*authority).clone());
        identity.with_authorities("alice", authorities, []).unwrap().issuer()
    };
    assert_eq!(issuer(&[&old, &new]), Some(CaPin::of(&old)));
    assert_eq!(issuer(&[&new, &old]), Some(CaPin::of(&old)));
    assert_eq!(issuer(&[&new]), None);
}

#[test]
fn the_ssh_half_is_carried_along() {
    let mut document: Value = serde_json::from_str(&user(&authority("prod")).to_json().unwrap()).unwrap();
    document["spec"]["ssh_cert"] = "cert".into();
    document["spec"]["ssh_ca_certs"] = json!(["a", "b"]);
    let identity = Identity::from_json(document.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&identity.to_json().unwrap()).unwrap(), document);
}

#[test]
fn what_is_wrong_is_named_and_no_key_is_shown() {
    let authority = authority("prod");
    let identity = user(&authority);
    let good: Value = serde_json::from_str(&identity.to_json().unwrap()).unwrap();
    let pem = identity.key().to_pem();
    let other = PrivateKey::generate().unwrap().to_pem();
    let leaf = identity.certificate().to_pem();
    let plain = authority.certificate().to_pem();
    let cases = [
        ("/kind", json!("user"), "its kind is \"user\": expected \"identity\""),
        ("/kind", json!(pem), "its kind is a text of"),
        ("/version", json!("v1"), "its version is \"v1\": expected \"v2\""),
        ("/metadata", json!(pem), "metadata.name is missing"),
        ("/metadata/name", json!(1), "metadata.name is not a text"),
        ("/spec", json!(pem), "spec.key is missing"),
        ("/spec/key", json!([pem]), "spec.key is not a text"),
        ("/spec/key", json!(leaf), "spec.key: the private key cannot be read"),
        ("/spec/key", json!(pem[..pem.len() / 2]), "spec.key: the private key cannot be read"),
        ("/spec/key", json!(other), "does not belong to the certificate"),
        ("/spec/tls_cert", json!(pem), "spec.tls_cert: the certificate cannot be used"),
        ("/spec/tls_cert", json!(format!("{leaf}{leaf}")), "expected one PEM block"),
        ("/spec/tls_ca_certs", json!([]), "no CA certificate"),
        ("/spec/tls_ca_certs", json!([leaf]), "not one of an authority"),
        ("/spec/tls_ca_certs", json!([pem]), "spec.tls_ca_certs: the certificate"),
        ("/spec/tls_ca_certs", json!([plain, 7]), "spec.tls_ca_certs[1] is not a text"),
        ("/spec/ssh_ca_certs", json!(pem), "spec.ssh_ca_certs is not a list"),
    ];
    for (pointer, value, expected) in cases {
        let mut document = good.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        let error = Identity::from_json(document.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{pointer}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(&pem.lines().nth(1).unwrap()[..12]), "{shown}");
    }
    for end in [0, 1, 100, 300] {
        let text = identity.to_json().unwrap();
        let error = Identity::from_json(&text.as_bytes()[..end]).unwrap_err().to_string();
        assert!(error.contains("it is not JSON (line"), "{error}");
    }
}

#[test]
fn a_certificate_of_nobody_is_no_identity() {
    let authority = authority("prod");
    let (key, certificate) = super::odd(&authority, &[], vec![], |_| {});
    let made = Identity::new("x", key, certificate, authority.certificates().cloned());
    assert!(matches!(made, Err(Error::Principal(_))));
    let (key, certificate) = server_at(&authority, noon());
    Identity::new("s1", key, certificate, authority.certificates().cloned()).unwrap();
}
