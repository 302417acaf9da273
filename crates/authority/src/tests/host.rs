//! What is signed for hosts, as OpenSSH and OpenSSL read it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use refit_types::AgentRole;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::issue::openssl;
use super::{HOUR, authority, host_at, host_id, noon, request, user};
use crate::{CLOCK_SKEW, Error, HOST_TTL, MIN_TTL};
use refit_identity::{HostCertificates, Identity, Principal, PrivateKey, SigningRequest};

/// What `ssh-keygen -L` says of a certificate. It checks the signature before it says anything.
fn ssh_keygen(certificate: &str) -> Result<Vec<String>, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host-cert.pub");
    fs::write(&path, certificate).unwrap();
    let output = Command::new("ssh-keygen").env("TZ", "UTC").arg("-Lf").arg(&path).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout).lines().map(|line| line.trim().to_string()).collect()),
        false => Err(text(output.stderr)),
    }
}

fn fingerprint(public: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.pub");
    fs::write(&path, public).unwrap();
    let output = Command::new("ssh-keygen").arg("-lf").arg(&path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').nth(1).unwrap().to_string()
}

#[test]
fn a_host_certificate_says_which_host_and_role() {
    let authority = authority("prod");
    let identity = host_at(&authority, "current", noon());
    let expected = Principal::Host { cluster: "prod".parse().unwrap(), id: host_id(), role: AgentRole::Node };
    let chain = [identity.certificate().der().clone()];
    assert_eq!(authority.trust().unwrap().verify_client(&chain, noon()).unwrap(), expected);
    assert_eq!(expected.to_string(), format!("host {} (node) of cluster prod", host_id()));

    let (_, parsed) = X509Certificate::from_der(identity.certificate().der()).unwrap();
    let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [format!("URI(refit://prod/host/{})", host_id()), "URI(refit://prod/agent-role/node)".into()]
    );
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any);
    assert_eq!(parsed.subject().to_string(), format!("O=prod, CN={}", host_id()));
}

#[test]
fn openssl_agrees() {
    let authority = authority("prod");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    fs::write(path("ca.pem"), authority.certificate().to_pem()).unwrap();
    fs::write(path("host.pem"), host_at(&authority, "current", noon()).certificate().to_pem()).unwrap();
    let (ca, leaf, at) = (path("ca.pem"), path("host.pem"), noon().as_second().to_string());
    let strict = ["verify", "-x509_strict", "-attime", &at, "-purpose", "sslclient", "-CAfile", &ca, &leaf];
    let shown = openssl(&strict);
    assert!(shown.trim_end().ends_with("OK"), "{shown}");
}

#[test]
fn openssh_agrees() {
    let authority = authority("prod");
    let identity = host_at(&authority, "current", noon());
    let certificate = identity.ssh_certificate().unwrap();
    let shown = ssh_keygen(certificate).unwrap();
    let [ca] = authority.ssh_authorities().collect::<Vec<_>>().try_into().unwrap();
    let has = |line: String| assert!(shown.contains(&line), "{line:?} is not in {shown:#?}");
    has("Type: ecdsa-sha2-nistp256-cert-v01@openssh.com host certificate".into());
    has(format!("Signing CA: ED25519 {} (using ssh-ed25519)", fingerprint(&ca)));
    has(format!("Key ID: \"{}.prod:node\"", host_id()));
    has("Valid: from 2026-03-01T11:59:00 to 2026-03-01T13:00:00".into());
    has("Critical Options: (none)".into());
    has("Extensions: (none)".into());
    let at = shown.iter().position(|line| line == "Principals:").unwrap();
    assert_eq!(shown[at + 1..at + 3], [host_id().to_string(), format!("{}.prod", host_id())]);
    assert!(shown[at + 3].starts_with("Critical"), "{shown:#?}");

    // It is over the very key of the identity.
    let public = shown.iter().find_map(|line| line.strip_prefix("Public key: ECDSA-CERT ")).unwrap();
    let raw = identity.key().pair().public_key_raw();
    let blob = [&[0, 0, 0, 19][..], b"ecdsa-sha2-nistp256", &[0, 0, 0, 8], b"nistp256", &[0, 0, 0, 65], raw];
    let plain = format!("ecdsa-sha2-nistp256 {}", data_encoding::BASE64.encode(&blob.concat()));
    assert_eq!(public, fingerprint(&plain));
}

#[test]
fn openssh_believes_no_altered_certificate() {
    let identity = host_at(&authority("prod"), "current", noon());
    let (kind, body) = identity.ssh_certificate().unwrap().split_once(' ').unwrap();
    let blob = data_encoding::BASE64.decode(body.as_bytes()).unwrap();
    let node = blob.windows(5).position(|bytes| bytes == b":node").unwrap();
    for at in [node + 1, blob.len() - 1] {
        let mut altered = blob.clone();
        altered[at] ^= 1;
        let altered = format!("{kind} {}", data_encoding::BASE64.encode(&altered));
        assert!(ssh_keygen(&altered).is_err(), "{at}");
    }
}

#[test]
fn every_kind_of_key_is_certified() {
    for (kind, name) in [
        (&rcgen::PKCS_ECDSA_P384_SHA384, "ecdsa-sha2-nistp384-cert-v01@openssh.com host certificate"),
        (&rcgen::PKCS_ED25519, "ssh-ed25519-cert-v01@openssh.com host certificate"),
    ] {
        let key = KeyPair::generate_for(kind).unwrap();
        let csr = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let request = SigningRequest::from_pem(&csr).unwrap();
        let issued = authority("prod").issue_host(&request, host_id(), AgentRole::Db, HOUR, noon()).unwrap();
        assert!(ssh_keygen(&issued.ssh).unwrap().contains(&format!("Type: {name}")));
        let key = PrivateKey::from_pem(&key.serialize_pem()).unwrap();
        refit_identity::ssh_certificate::check_certifies(&issued.ssh, &key).unwrap();
        assert_eq!(key.pair().subject_public_key_info(), issued.tls.public_key());
    }
}

#[test]
fn lifetimes_have_bounds() {
    let authority = authority("prod");
    let request = request(&PrivateKey::generate().unwrap());
    let issue = |ttl| authority.issue_host(&request, host_id(), AgentRole::Node, ttl, noon());
    for ttl in [MIN_TTL, HOST_TTL] {
        let issued = issue(ttl).unwrap().tls;
        assert_eq!(issued.not_after(), noon().checked_add(ttl).unwrap());
        assert_eq!(issued.not_before(), noon().checked_sub(CLOCK_SKEW).unwrap());
    }
    for ttl in [Duration::ZERO, HOST_TTL + Duration::from_secs(1), Duration::MAX] {
        assert!(matches!(issue(ttl), Err(Error::Ttl { .. })), "{ttl:?}");
    }
}

#[test]
fn a_hosts_identity_reads_back() {
    let authority = authority("prod");
    let identity = host_at(&authority, "current", noon());
    let document: Value = serde_json::from_str(&identity.to_json().unwrap()).unwrap();
    assert_eq!(
        document,
        json!({
            "kind": "identity", "version": "v2", "metadata": {"name": "current"},
            "spec": {
                "key": identity.key().to_pem(),
                "ssh_cert": identity.ssh_certificate().unwrap(),
                "tls_cert": identity.certificate().to_pem(),
                "tls_ca_certs": [authority.certificate().to_pem()],
                "ssh_ca_certs": authority.ssh_authorities().collect::<Vec<_>>(),
            },
        })
    );
    let again = Identity::from_json(document.to_string().as_bytes()).unwrap();
    assert_eq!(again.to_json().unwrap(), identity.to_json().unwrap());
    assert_eq!(again.ssh_authorities(), identity.ssh_authorities());
}

#[test]
fn halves_that_do_not_fit_are_no_identity() {
    let authority = authority("prod");
    let (identity, other) = (host_at(&authority, "a", noon()), host_at(&authority, "b", noon()));
    let join = |tls: &Identity, ssh: &str, ssh_authorities: Vec<String>| {
        let certificates = HostCertificates { tls: tls.certificate().clone(), ssh: ssh.into() };
        let authorities = authority.certificates().cloned();
        Identity::for_host("x", tls.key().clone(), certificates, authorities, ssh_authorities)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let own = identity.ssh_certificate().unwrap();
    let cas = || authority.ssh_authorities().collect::<Vec<_>>();
    join(&identity, own, cas()).unwrap();
    join(&identity, &format!("{own} with a comment\n"), cas()).unwrap();
    let (kind, body) = own.split_once(' ').unwrap();
    let ca = cas().remove(0);
    let of_user = {
        let mut blob = data_encoding::BASE64.decode(body.as_bytes()).unwrap();
        let at = 4 + kind.len() + 4 + 32 + 4 + 8 + 4 + 65 + 8 + 3;
        assert_eq!(blob[at], 2);
        blob[at] = 1;
        format!("{kind} {}", data_encoding::BASE64.encode(&blob))
    };
    for (tls, ssh, cas, expected) in [
        (&identity, other.ssh_certificate().unwrap(), cas(), "does not belong"),
        (&identity, "", cas(), "expected a line"),
        (&identity, body, cas(), "expected a line"),
        (&identity, &ca, cas(), "not an OpenSSH certificate"),
        (&identity, &format!("{kind} !"), cas(), "not base64"),
        (&identity, &format!("{kind} {}", &body[..40]), cas(), "cut off"),
        (&identity, &own.replace("nistp256-", "nistp384-"), cas(), "different kinds"),
        (&identity, &of_user, cas(), "not one for a host"),
        (&identity, own, vec![], "no SSH authority"),
        (&user(&authority), own, cas(), "not one of a host"),
    ] {
        let error = join(tls, ssh, cas).unwrap_err();
        assert!(error.contains(expected), "{error}: expected {expected}");
    }
    let mut document: Value = serde_json::from_str(&identity.to_json().unwrap()).unwrap();
    document["spec"]["ssh_cert"] = "".into();
    assert!(Identity::from_json(document.to_string().as_bytes()).is_err());
}
