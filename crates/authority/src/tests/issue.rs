//! What is signed for users and servers, and what is not.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{HOUR, authority, dns, noon, request, server_at, uri, user};
use crate::{Error, MAX_USER_TTL, MIN_TTL};
use refit_identity::{CaPin, Principal, PrivateKey, Role, SERVER_NAME, SigningRequest};

#[test]
fn a_user_certificate_says_what_the_authority_decided() {
    let authority = authority("prod");
    let identity = user(&authority);
    let (_, parsed) = X509Certificate::from_der(identity.certificate().der()).unwrap();
    let names: Vec<String> = parsed
        .subject_alternative_name()
        .unwrap()
        .unwrap()
        .value
        .general_names
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        names,
        [
            "URI(refit://prod/user/alice)",
            "URI(refit://prod/role/rollout-editor)",
            "URI(refit://prod/role/viewer)"
        ]
    );
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any);
    assert_eq!(parsed.subject().to_string(), "O=prod, CN=alice");
    assert!(!parsed.is_ca());
    assert_eq!(parsed.key_usage().unwrap().unwrap().value.flags, 1, "digitalSignature only");
    assert_eq!(identity.certificate().not_before().to_string(), "2026-03-01T11:59:00Z");
    assert_eq!(identity.expires().to_string(), "2026-03-01T13:00:00Z");
}

#[test]
fn a_request_that_asks_for_more_gets_none_of_it() {
    let key = PrivateKey::generate().unwrap();
    let mut asked = CertificateParams::default();
    asked.distinguished_name.push(DnType::CommonName, "root");
    asked.distinguished_name.push(DnType::OrganizationName, "other");
    asked.subject_alt_names =
        vec![uri("refit://prod/role/admin"), uri("refit://prod/user/root"), dns(SERVER_NAME)];
    asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    asked.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    asked.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any];
    asked.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0])];
    let pem = asked.serialize_request(key.pair()).unwrap().pem().unwrap();

    let authority = authority("prod");
    let request = SigningRequest::from_pem(&pem).unwrap();
    let issued =
        authority.issue_user(&request, &"bob".parse().unwrap(), &Role::Viewer.into(), HOUR, noon()).unwrap();

    let expected = Principal::User {
        cluster: "prod".parse().unwrap(),
        name: "bob".parse().unwrap(),
        roles: Role::Viewer.into(),
    };
    assert_eq!(authority.trust().unwrap().verify_client(&[issued.der().clone()], noon()).unwrap(), expected);
    assert!(key.belongs_to(&issued));
    let (_, parsed) = X509Certificate::from_der(issued.der()).unwrap();
    assert_eq!(parsed.subject().to_string(), "O=prod, CN=bob");
    assert!(!parsed.is_ca());
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any);
    assert!(!parsed.key_usage().unwrap().unwrap().value.key_cert_sign());
    assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 2);
    assert!(parsed.extensions().iter().all(|extension| extension.oid.to_id_string() != "1.2.3.4"));
    assert_eq!(issued.not_after(), noon().checked_add(HOUR).unwrap());
}

#[test]
fn a_server_certificate_names_the_server() {
    let authority = authority("prod");
    let (_, certificate) = server_at(&authority, noon());
    let (_, parsed) = X509Certificate::from_der(certificate.der()).unwrap();
    let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
    let loopback6 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        *names,
        [
            GeneralName::DNSName(SERVER_NAME),
            GeneralName::DNSName("localhost"),
            GeneralName::IPAddress(&[127, 0, 0, 1]),
            GeneralName::IPAddress(&loopback6),
            GeneralName::URI("refit://prod/server/s1"),
        ]
    );
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
    let expected = Principal::Server { cluster: "prod".parse().unwrap(), id: "s1".parse().unwrap() };
    assert_eq!(certificate.principal().unwrap(), expected);
}

#[test]
fn lifetimes_have_bounds() {
    let authority = authority("prod");
    let request = request(&PrivateKey::generate().unwrap());
    let name = "alice".parse().unwrap();
    let issue = |ttl, now| authority.issue_user(&request, &name, &Role::Admin.into(), ttl, now);
    for ttl in [MIN_TTL, MAX_USER_TTL] {
        issue(ttl, noon()).unwrap();
    }
    let second = Duration::from_secs(1);
    for ttl in [Duration::ZERO, MIN_TTL - second, MAX_USER_TTL + second, Duration::MAX] {
        assert!(matches!(issue(ttl, noon()), Err(Error::Ttl { .. })), "{ttl:?}");
    }
    assert_eq!(
        issue(Duration::from_secs(91 * 86_400), noon()).unwrap_err().to_string(),
        "a certificate cannot last 91 days: expected 1 minute to 90 days"
    );
    let server = |ttl| authority.issue_server(&request, &"s".parse().unwrap(), &[], ttl, noon());
    assert!(matches!(server(Duration::ZERO), Err(Error::Ttl { .. })));

    // Never past the authority's own end, and never after it.
    let end = authority.certificate().not_after();
    assert_eq!(server(Duration::MAX).unwrap().not_after(), end);
    let late = end.checked_sub(HOUR).unwrap();
    assert_eq!(issue(MAX_USER_TTL, late).unwrap().not_after(), end);
    assert!(matches!(issue(HOUR, end), Err(Error::AuthorityExpired { .. })));
    assert!(matches!(issue(HOUR, "1960-01-01T00:00:00Z".parse().unwrap()), Err(Error::Clock(_))));
}

#[test]
fn serial_numbers_are_long_and_differ() {
    let authority = authority("prod");
    let serials: std::collections::BTreeSet<String> =
        (0..20).map(|_| user(&authority).certificate().serial().to_string()).collect();
    assert_eq!(serials.len(), 20);
    assert!(serials.iter().any(|serial| serial.len() >= 32), "{serials:?}");
}

pub(super) fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "openssl {arguments:?}: {shown}");
    shown
}

#[test]
fn openssl_agrees() {
    let authority = authority("prod");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    fs::write(path("ca.pem"), authority.certificate().to_pem()).unwrap();
    fs::write(path("user.pem"), user(&authority).certificate().to_pem()).unwrap();
    fs::write(path("server.pem"), server_at(&authority, noon()).1.to_pem()).unwrap();
    let at = noon().as_second().to_string();
    for (purpose, leaf) in [("sslclient", "user.pem"), ("sslserver", "server.pem")] {
        let shown = openssl(&[
            "verify",
            "-x509_strict",
            "-attime",
            &at,
            "-purpose",
            purpose,
            "-CAfile",
            &path("ca.pem"),
            &path(leaf),
        ]);
        assert!(shown.trim_end().ends_with("OK"), "{shown}");
    }

    let public = openssl(&["x509", "-in", &path("ca.pem"), "-noout", "-pubkey"]);
    fs::write(path("ca.pub"), public).unwrap();
    openssl(&["pkey", "-pubin", "-in", &path("ca.pub"), "-outform", "DER", "-out", &path("ca.der")]);
    let digest = openssl(&["dgst", "-sha256", "-r", &path("ca.der")]);
    let pin: CaPin = format!("sha256:{}", digest.split(' ').next().unwrap()).parse().unwrap();
    assert_eq!(pin, authority.pin());
    assert!(pin.matches(authority.certificate()) && !pin.matches(user(&authority).certificate()));

    // And its requests are taken, whatever they ask for.
    openssl(&[
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        &path("key"),
        "-out",
        &path("csr"),
        "-subj",
        "/CN=root",
        "-addext",
        "subjectAltName=DNS:x",
    ]);
    SigningRequest::from_pem(&fs::read_to_string(path("csr")).unwrap()).unwrap();
}
