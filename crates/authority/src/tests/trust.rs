//! Whose certificate a server believes, and what it says of the others.

use rcgen::{ExtendedKeyUsagePurpose as Purpose, IsCa, SanType};
use rustls::pki_types::CertificateDer;

use super::{HOUR, authority, dns, noon, odd, request, server_at, uri, user};
use refit_identity::{AuthError, Certificate, Principal, PrivateKey, Trust};

fn verify(trust: &Trust, certificate: &Certificate) -> Result<Principal, AuthError> {
    trust.verify_client(&[certificate.der().clone()], noon())
}

#[test]
fn a_users_certificate_gives_its_principal() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    let identity = user(&authority);
    let chain = [identity.certificate().der().clone(), authority.certificate().der().clone()];
    assert_eq!(trust.verify_client(&chain, noon()).unwrap(), *identity.principal());
    assert_eq!(trust.verify_client(&chain, identity.expires()).unwrap(), *identity.principal());
    assert!(matches!(trust.verify_client(&[], noon()), Err(AuthError::Missing { .. })));
}

#[test]
fn dates_are_explained() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    let identity = user(&authority);
    let chain = [identity.certificate().der().clone()];

    let late = identity.expires().checked_add(std::time::Duration::from_secs(1)).unwrap();
    let error = trust.verify_client(&chain, late).unwrap_err();
    assert_eq!(error, AuthError::Expired { at: identity.expires() });
    assert_eq!(error.to_string(), "the certificate expired at 2026-03-01T13:00:00Z: sign in again");

    let early = noon().checked_sub(HOUR).unwrap();
    let error = trust.verify_client(&chain, early).unwrap_err();
    assert_eq!(error, AuthError::NotYetValid { from: "2026-03-01T11:59:00Z".parse().unwrap(), now: early });
    assert!(matches!(trust.verify_client(&chain, jiff::Timestamp::MIN), Err(AuthError::NotYetValid { .. })));
}

#[test]
fn strangers_are_told_whose_they_are() {
    let trust = authority("prod").trust().unwrap();
    let stranger = user(&authority("staging"));
    let error = verify(&trust, stranger.certificate()).unwrap_err();
    let expected = AuthError::OtherCluster {
        cluster: "prod".parse().unwrap(),
        claimed: Some("staging".parse().unwrap()),
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("prod") && error.to_string().contains("staging"), "{error}");

    // Also when it is expired or made for another purpose: that it is a stranger's comes first.
    let late = noon().checked_add(HOUR * 48).unwrap();
    assert_eq!(trust.verify_client(&[stranger.certificate().der().clone()], late).unwrap_err(), expected);
    let (_, server) = server_at(&authority("staging"), noon());
    assert_eq!(verify(&trust, &server).unwrap_err(), expected);

    // An authority of the same name, as after setting a cluster up anew.
    let error = verify(&trust, user(&authority("prod")).certificate()).unwrap_err();
    assert_eq!(error, AuthError::NotSigned { cluster: "prod".parse().unwrap() });
}

#[test]
fn self_signed_certificates_are_nobodys() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    let key = PrivateKey::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.extended_key_usages = vec![Purpose::ClientAuth];
    params.subject_alt_names = vec![uri("refit://prod/user/alice"), uri("refit://prod/role/admin")];
    let forged = params.self_signed(key.pair()).unwrap();
    let error = trust.verify_client(&[forged.der().clone()], noon()).unwrap_err();
    assert!(matches!(error, AuthError::OtherCluster { .. }), "{error:?}");

    // With the authority's own name on it, and its certificate beside.
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "prod");
    params.distinguished_name.push(rcgen::DnType::CommonName, "prod Refit CA");
    let forged = params.self_signed(key.pair()).unwrap();
    let chain = [forged.der().clone(), authority.certificate().der().clone()];
    let error = trust.verify_client(&chain, noon()).unwrap_err();
    assert!(matches!(error, AuthError::NotSigned { .. }), "{error:?}");
}

#[test]
fn certificates_signed_by_a_user_are_nobodys() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    // Even if the authority had once signed another authority.
    let (middle_key, middle) = odd(&authority, &[], vec![], |params| {
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    let issuer = rcgen::Issuer::from_ca_cert_der(middle.der(), middle_key.pair()).unwrap();
    let key = PrivateKey::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.extended_key_usages = vec![Purpose::ClientAuth];
    params.subject_alt_names = vec![uri("refit://prod/user/alice"), uri("refit://prod/role/admin")];
    let leaf = params.signed_by(request(&key).public_key(), &issuer).unwrap();
    let chain = [leaf.der().clone(), middle.der().clone(), authority.certificate().der().clone()];
    let error = trust.verify_client(&chain, noon()).unwrap_err();
    assert!(matches!(error, AuthError::OtherCluster { .. }), "{error:?}");
    assert!(trust.verify_client(&chain[1..], noon()).is_err());
    assert!(trust.verify_client(&chain[2..], noon()).is_err(), "nor is the authority itself a client");
}

#[test]
fn purposes_must_be_written_down() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    let (_, server) = server_at(&authority, noon());
    assert_eq!(verify(&trust, &server).unwrap_err(), AuthError::WrongPurpose);
    let names = || vec![uri("refit://prod/user/alice"), uri("refit://prod/role/admin")];
    for purposes in [&[][..], &[Purpose::Any], &[Purpose::CodeSigning]] {
        let (_, certificate) = odd(&authority, purposes, names(), |_| {});
        assert_eq!(verify(&trust, &certificate).unwrap_err(), AuthError::WrongPurpose, "{purposes:?}");
    }
    let (_, certificate) = odd(&authority, &[Purpose::ClientAuth], names(), |_| {});
    verify(&trust, &certificate).unwrap();
}

#[test]
fn odd_names_are_refused() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    let alice = || vec![uri("refit://prod/user/alice"), uri("refit://prod/role/admin")];
    let with = |name| [alice(), vec![name]].concat();
    let cases: Vec<Vec<SanType>> = vec![
        vec![],
        vec![uri("refit://prod/user/alice")],
        vec![dns("prod")],
        vec![uri("refit://other/user/alice"), uri("refit://other/role/admin")],
        with(uri("refit://other/role/viewer")),
        with(uri("refit://prod/role/root")),
        with(uri("refit://prod/role/admin")),
        with(uri("refit://prod/user/bob")),
        with(uri("refit://prod/server/s1")),
        with(uri("refit://prod/host/h1")),
        with(uri("https://example.com/")),
        with(dns("example.com")),
        with(dns(refit_identity::SERVER_NAME)),
        with(SanType::IpAddress([127, 0, 0, 1].into())),
        with(SanType::Rfc822Name("a@example.com".try_into().unwrap())),
    ];
    for names in cases {
        let (_, certificate) = odd(&authority, &[Purpose::ClientAuth], names.clone(), |_| {});
        let error = verify(&trust, &certificate).unwrap_err();
        assert!(matches!(error, AuthError::Malformed { .. }), "{names:?}: {error:?}");
    }
    let (_, certificate) = odd(&authority, &[Purpose::ClientAuth], alice(), |params| {
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    assert!(matches!(verify(&trust, &certificate), Err(AuthError::Malformed { .. })), "an authority");
}

#[test]
fn no_altered_certificate_is_believed() {
    let authority = authority("prod");
    let trust = authority.trust().unwrap();
    let good = user(&authority);
    let der = good.certificate().der();
    let mut not_signed = 0;
    for index in 0..der.len() {
        for bit in [1, 0x80] {
            let mut altered = der.to_vec();
            altered[index] ^= bit;
            let error = trust.verify_client(&[CertificateDer::from(altered)], noon()).unwrap_err();
            not_signed += usize::from(matches!(error, AuthError::NotSigned { .. }));
        }
    }
    assert!(not_signed > 100, "{not_signed}");

    let position = der.windows(5).position(|bytes| bytes == b"alice").unwrap();
    let mut altered = der.to_vec();
    altered[position..position + 5].copy_from_slice(b"admin");
    let error = trust.verify_client(&[CertificateDer::from(altered)], noon()).unwrap_err();
    assert!(matches!(error, AuthError::NotSigned { .. }), "{error:?}");
    for end in 0..der.len() {
        assert!(matches!(
            trust.verify_client(&[CertificateDer::from(&der[..end])], noon()),
            Err(AuthError::Malformed { .. })
        ));
    }
}

#[test]
fn only_authorities_are_trusted() {
    let authority = authority("prod");
    let leaf = user(&authority).certificate().clone();
    assert!(Trust::new("prod".parse().unwrap(), [leaf]).is_err());
    assert!(Trust::new("prod".parse().unwrap(), []).is_err());
}
