//! TLS and user authentication against a real etcd, with passwords that need percent-encoding.

use refit_backend::{Backend, Error, KeyRange, Read};
use refit_testbed::{Certificates, Etcd};

use super::{bytes, connect, key, next_keys, within};

const PASSWORD: &str = "hunter2:/@";
const ENCODED: &str = "hunter2%3A%2F%40";

#[tokio::test]
async fn tls_goes_both_ways() {
    let certificates = Certificates::new();
    let etcd = Etcd::builder().tls(&certificates).start().await;
    let ca = format!("etcd://{}?ca={}", etcd.endpoint(), certificates.ca().display());
    let (cert, identity) = (certificates.client_cert(), certificates.client_key());
    let address = format!("{ca}&cert={}&key={}", cert.display(), identity.display());
    let backend = connect(&address).await.unwrap();
    backend.create(&key("/a"), bytes("1")).await.unwrap();
    assert_eq!(backend.get(&key("/a")).await.unwrap().unwrap().value, "1");

    let nobody = connect(&ca).await.unwrap_err();
    assert!(matches!(nobody, Error::Refused { .. }), "without a certificate: {nobody}");

    let others = Certificates::new();
    let stranger =
        address.replace(&certificates.ca().display().to_string(), &others.ca().display().to_string());
    let untrusted = connect(&stranger).await.unwrap_err();
    assert!(matches!(untrusted, Error::Unavailable { .. }), "with another authority: {untrusted}");
    assert!(untrusted.to_string().contains("certificate"), "{untrusted}");

    let plain = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap_err();
    assert!(matches!(plain, Error::Unavailable { .. }), "without TLS: {plain}");
}

#[tokio::test]
async fn files_that_are_not_there_or_not_certificates_are_named() {
    let certificates = Certificates::new();
    for (query, expected) in [
        ("ca=/nowhere/ca.pem".to_owned(), "ca=/nowhere/ca.pem: No such file"),
        ("ca=/proc/self/status".to_owned(), "ca=/proc/self/status: this is not a PEM file"),
        (format!("ca={0}&cert={0}&key={0}", certificates.ca().display()), "private key"),
    ] {
        let error = connect(&format!("etcd://127.0.0.1:1?{query}")).await.unwrap_err();
        assert!(matches!(error, Error::BadAddress(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = connect("etcd://me@127.0.0.1:1?password_file=/nowhere").await.unwrap_err();
    assert!(error.to_string().contains("password_file=/nowhere: No such file"), "{error}");
}

#[tokio::test]
async fn users_are_let_in_by_their_password_only() {
    let etcd = Etcd::builder().password(PASSWORD).start().await;
    let at = etcd.endpoint();
    for user in ["root", "refit"] {
        let backend = connect(&format!("etcd://{user}:{ENCODED}@{at}")).await.unwrap();
        backend.put(&key("/a"), bytes(user)).await.unwrap();
        let lease = backend.grant_lease(std::time::Duration::from_secs(60)).await.unwrap();
        backend.keep_alive(lease.id).await.unwrap();
        backend.revoke_lease(lease.id).await.unwrap();
        assert_eq!(backend.read(&[]).await.unwrap().pages, []);
        let shown = format!("{} {backend:?}", backend.describe());
        assert!(shown.contains(&at) && !shown.contains("hunter2"), "{shown}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{PASSWORD}\n")).unwrap();
    let from_file = format!("etcd://refit@{at}?password_file={}", file.path().display());
    connect(&from_file).await.unwrap();

    for wrong in [
        format!("etcd://root:hunter2-wrong@{at}"),
        format!("etcd://nobody:{ENCODED}@{at}"),
        format!("etcd://{at}"),
        format!("etcd://refit:{ENCODED}@{at}/not-mine"),
    ] {
        let error = connect(&wrong).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{wrong}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_user_is_no_obstacle_where_none_is_asked_for() {
    let etcd = Etcd::start().await;
    let backend = connect(&format!("etcd://root:{ENCODED}@{}", etcd.endpoint())).await.unwrap();
    backend.put(&key("/before"), bytes("")).await.unwrap();
    etcd.require_password(PASSWORD).await;
    backend.put(&key("/after"), bytes("")).await.unwrap();
}

/// etcd forgets its tokens when it restarts.
#[tokio::test]
async fn a_token_that_is_no_longer_valid_is_replaced() {
    let mut etcd = Etcd::builder().password(PASSWORD).start().await;
    let backend = connect(&format!("etcd://refit:{ENCODED}@{}", etcd.endpoint())).await.unwrap();
    let start = backend.put(&key("/start"), bytes("")).await.unwrap();
    let mut old = backend.watch(&KeyRange::all(), start).await.unwrap();
    etcd.restart().await;
    backend.read(&[Read::Key(key("/start"))]).await.unwrap();
    backend.put(&key("/a"), bytes("")).await.unwrap();
    assert_eq!(next_keys(&mut old, 1).await, [key("/a")]);

    etcd.restart().await;
    let opened = within("a watch with an old token", backend.watch(&KeyRange::all(), start)).await;
    let mut new = opened.unwrap();
    backend.put(&key("/b"), bytes("")).await.unwrap();
    assert_eq!(next_keys(&mut new, 2).await, [key("/a"), key("/b")]);
    assert_eq!(next_keys(&mut old, 1).await, [key("/b")]);
}
