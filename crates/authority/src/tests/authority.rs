//! The authority is created once, read back, and refused when it was tampered with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use refit_backend::{Backend, Key, MemoryBackend};
use refit_testbed::{Intercept, InterceptedBackend};
use tokio::sync::Barrier;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{authority, noon};
use crate::record::AuthorityKey;
use crate::{AUTHORITY_KEY, Authority, Error, RotationMode, record};
use refit_identity::Phase;

fn key() -> Key {
    Key::new(AUTHORITY_KEY).unwrap()
}

#[tokio::test]
async fn the_first_to_create_wins_and_its_name_is_told() {
    let store = MemoryBackend::default();
    let first = Authority::load_or_create(&store, "one".parse().unwrap(), noon()).await.unwrap();
    let second = Authority::load_or_create(&store, "two".parse().unwrap(), noon()).await.unwrap();
    assert_eq!(second.cluster().as_str(), "one");
    assert_eq!(first.certificate(), second.certificate());
    assert_eq!(first.signing().key.to_pem(), second.signing().key.to_pem());
}

/// Lets the first eight readers go on together: all have found nothing before the first of them writes.
#[derive(Debug)]
struct EightReaders {
    reads: AtomicUsize,
    all_read: Barrier,
}

#[async_trait]
impl Intercept for EightReaders {
    async fn after_read(&self) {
        if self.reads.fetch_add(1, Ordering::SeqCst) < 8 {
            self.all_read.wait().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_that_start_at_once_agree() {
    let readers = EightReaders { reads: AtomicUsize::new(0), all_read: Barrier::new(8) };
    let store = InterceptedBackend::new(Arc::new(MemoryBackend::default()), readers);
    let servers: Vec<_> = (0..8)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let name = format!("cluster-{number}").parse().unwrap();
                Authority::load_or_create(store.as_ref(), name, noon()).await.unwrap()
            })
        })
        .collect();
    let mut authorities = Vec::new();
    for server in servers {
        authorities.push(server.await.unwrap());
    }
    let stored = Authority::load_or_create(store.as_ref(), "late".parse().unwrap(), noon()).await.unwrap();
    for authority in authorities {
        assert_eq!(authority.cluster(), stored.cluster());
        assert_eq!(authority.pin(), stored.pin());
        assert!(authority.signing().key.belongs_to(stored.certificate()));
    }
}

#[tokio::test]
async fn a_garbled_record_is_named_and_not_shown() {
    let good = authority("one");
    let other = authority("one");
    let encode = |authority: &Authority| String::from_utf8(record::encode(authority).unwrap()).unwrap();
    let text = encode(&good);
    let pem = good.signing().key.to_pem();
    let escaped = serde_json::to_string(&pem).unwrap();
    let swapped = text.replace(&escaped, &serde_json::to_string(&other.signing().key.to_pem()).unwrap());
    let leaf = serde_json::to_string(&super::user(&good).certificate().to_pem()).unwrap();
    let ssh = serde_json::to_string(&good.signing().ssh.key().to_pem()).unwrap();
    let authority_pem = serde_json::to_string(&good.certificate().to_pem()).unwrap();
    let record_of =
        |key: &AuthorityKey| encode(&Authority::from_parts(good.cluster().clone(), key.clone(), None, None));
    let user = super::user(&good);
    let user = AuthorityKey {
        certificate: user.certificate().clone(),
        key: user.key().clone(),
        ssh: good.signing().ssh.clone(),
    };
    let forged = super::counterfeit(&good, &other);
    let forged = forged.signing().clone();
    let rotating = good.advance(Phase::Init, RotationMode::Manual, noon()).unwrap();
    let halved = Authority::from_parts(
        good.cluster().clone(),
        good.signing().clone(),
        None,
        rotating.rotation().cloned(),
    );
    let cases = [
        (String::new(), "not JSON"),
        (text[..text.len() - 9].to_string(), "not JSON"),
        (escaped.clone(), "kind is missing"),
        (text.replace("\"authority\"", "\"identity\""), "its kind is \"identity\": expected \"authority\""),
        (text.replace("\"authority\"", &escaped), "its kind is a text of"),
        (text.replace("\"v1\"", "\"v9\""), "its version is \"v9\": expected \"v1\""),
        (text.replace("\"one\"", "\"two\""), "not one of cluster two"),
        (text.replace("\"one\"", &escaped), "is not a cluster name"),
        (text.replace("\"keys\":[", "\"keys\":[],\"old\":["), "it has no keys"),
        (text.replace(&escaped, "7"), "keys[0]: key is not a text"),
        (text.replace(&escaped[..18], "\"-----BEGIN X"), "private key cannot be read"),
        (text.replace("-----BEGIN C", "-----BEGIN X"), "expected one PEM block"),
        (text.replace(&authority_pem, &leaf), "does not belong"),
        (swapped, "does not belong"),
        (text.replace(&ssh, &escaped), "keys[0]: ssh_key: the private key cannot be read"),
        (text.replace("\"ssh_key\"", "\"ssh\""), "keys[0]: ssh_key is missing"),
        (text.replace("\"rotation\"", "\"old\""), "rotation is missing"),
        (text.replace("\"rotation\":null", &format!("\"rotation\":{escaped}")), "rotation cannot be read"),
        (encode(&rotating).replace("\"init\"", "\"standby\""), "does not fit the phase standby"),
        (encode(&rotating).replace("\"init\"", "\"later\""), "rotation cannot be read"),
        (encode(&halved), "does not fit the phase init"),
        (record_of(&user), "not one of an authority"),
        (record_of(&forged), "not one of an authority"),
    ];
    let body = pem.lines().nth(1).unwrap();
    for (record, expected) in cases {
        let store = MemoryBackend::default();
        store.put(&key(), record.clone().into()).await.unwrap();
        let error = Authority::load_or_create(&store, "one".parse().unwrap(), noon()).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, Error::Record { .. }), "{shown}");
        assert!(shown.contains(AUTHORITY_KEY) && shown.contains(expected), "{shown}");
        assert!(!shown.contains(&body[..12]), "{shown}");
        let untouched = store.get(&key()).await.unwrap().unwrap();
        assert_eq!(untouched.value, record.as_bytes(), "a garbled record is never overwritten");
    }
}

#[test]
fn the_certificate_is_one_of_an_authority() {
    let authority = authority("prod.example");
    let (_, parsed) = X509Certificate::from_der(authority.certificate().der()).unwrap();
    assert_eq!(parsed.subject().to_string(), "O=prod.example, CN=prod.example Refit CA");
    let constraints = parsed.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = parsed.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    assert_eq!(usage.flags.count_ones(), 2);
    assert_eq!(authority.certificate().not_before().to_string(), "2026-03-01T11:59:00Z");
    assert_eq!(authority.certificate().not_after().to_string(), "2036-03-01T12:00:00Z");
}
