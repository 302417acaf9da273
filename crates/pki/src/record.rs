use std::result::Result;

use serde::Serialize;
use serde_json::Value;

use crate::authority::Authority;
use crate::{Certificate, ClusterName, PrivateKey, json};

/// Where the authority that signs TLS certificates is stored.
pub const TLS_AUTHORITY_KEY: &str = "/authorities/v1/tls/cluster";

const KIND: &str = "authority";
const VERSION: &str = "v1";

/// The authority as it is stored. `keys` is a list so that a rotation can add to it: the first one
/// signs, all of them are trusted.
#[derive(Serialize)]
struct Record<'a> {
    kind: &'static str,
    version: &'static str,
    cluster: &'a ClusterName,
    keys: Vec<RecordKey>,
}

#[derive(Serialize)]
struct RecordKey {
    certificate: String,
    key: String,
}

/// One key of an authority, with the certificate that it signed for itself.
#[derive(Debug, Clone)]
pub(crate) struct AuthorityKey {
    pub(crate) certificate: Certificate,
    pub(crate) key: PrivateKey,
}

pub(crate) fn encode(cluster: &ClusterName, keys: &[AuthorityKey]) -> Result<Vec<u8>, serde_json::Error> {
    let keys = keys.iter().map(|AuthorityKey { certificate, key }| RecordKey {
        certificate: certificate.to_pem(),
        key: key.to_pem(),
    });
    serde_json::to_vec(&Record { kind: KIND, version: VERSION, cluster, keys: keys.collect() })
}

/// Reads a record back, or says what is wrong with it without showing any of it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Authority, String> {
    let document = json::parse(bytes)?;
    json::expect(&document, KIND, VERSION)?;
    let cluster: ClusterName = json::text(&document, "cluster")?.parse().map_err(reason)?;
    let keys = json::list(&document, "keys")?.iter().enumerate();
    let keys: Vec<AuthorityKey> = keys
        .map(|(at, key)| decode_key(key, &cluster).map_err(|reason| format!("keys[{at}]: {reason}")))
        .collect::<Result<_, _>>()?;
    let mut keys = keys.into_iter();
    let signing = keys.next().ok_or("it has no keys")?;
    Ok(Authority::from_parts(cluster, signing, keys.collect()))
}

fn decode_key(key: &Value, cluster: &ClusterName) -> Result<AuthorityKey, String> {
    let certificate = Certificate::from_pem(json::text(key, "certificate")?).map_err(reason)?;
    let key = PrivateKey::from_pem(json::text(key, "key")?).map_err(reason)?;
    if !key.belongs_to(&certificate) {
        return Err(crate::Error::KeyMismatch.to_string());
    }
    if !certificate.is_authority() || !certificate.is_self_signed() {
        return Err("its certificate is not one of an authority".into());
    }
    if certificate.claimed_cluster().as_ref() != Some(cluster) {
        return Err(format!("its certificate is not one of cluster {cluster}"));
    }
    Ok(AuthorityKey { certificate, key })
}

fn reason(error: impl std::fmt::Display) -> String {
    error.to_string()
}
