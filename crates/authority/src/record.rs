//! The authority as it is stored: one JSON record for TLS and SSH.

use std::result::Result;

use refit_identity::{Certificate, ClusterName, Phase, PrivateKey, secret_json};
use serde::Serialize;
use serde_json::Value;

use crate::Rotation;
use crate::authority::Authority;
use crate::ssh::SshAuthority;

/// Where the cluster's authority is stored: one record for TLS and SSH, so that they rotate as one.
pub const AUTHORITY_KEY: &str = "/authorities/v1/default/cluster";

const KIND: &str = "authority";
const VERSION: &str = "v1";

/// The authority as it is stored. `keys` has one entry, and during a rotation the new one after it.
#[derive(Serialize)]
struct Record<'a> {
    kind: &'static str,
    version: &'static str,
    cluster: &'a ClusterName,
    keys: Vec<RecordKey>,
    rotation: Option<&'a Rotation>,
}

#[derive(Serialize)]
struct RecordKey {
    certificate: String,
    key: String,
    ssh_key: String,
}

/// The keys of an authority that come and go together: the one for TLS, with the certificate that it
/// signed for itself, and the one for SSH.
#[derive(Debug, Clone)]
pub(crate) struct AuthorityKey {
    pub(crate) certificate: Certificate,
    pub(crate) key: PrivateKey,
    pub(crate) ssh: SshAuthority,
}

pub(crate) fn encode(authority: &Authority) -> crate::Result<Vec<u8>> {
    let keys = authority.keys().map(|AuthorityKey { certificate, key, ssh }| RecordKey {
        certificate: certificate.to_pem(),
        key: key.to_pem(),
        ssh_key: ssh.key().to_pem(),
    });
    let record = Record {
        kind: KIND,
        version: VERSION,
        cluster: authority.cluster(),
        keys: keys.collect(),
        rotation: authority.rotation(),
    };
    serde_json::to_vec(&record).map_err(|_| crate::Error::Crypto("storing a key"))
}

/// Reads a record back, or says what is wrong with it without showing any of it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Authority, String> {
    let document = secret_json::parse(bytes)?;
    secret_json::expect(&document, KIND, VERSION)?;
    let cluster: ClusterName = secret_json::text(&document, "cluster")?.parse().map_err(reason)?;
    let keys = secret_json::list(&document, "keys")?.iter().enumerate();
    let keys: Vec<AuthorityKey> = keys
        .map(|(at, key)| decode_key(key, &cluster).map_err(|reason| format!("keys[{at}]: {reason}")))
        .collect::<Result<_, _>>()?;
    // Serde's messages would repeat what they found.
    let rotation: Option<Rotation> =
        serde_json::from_value(secret_json::field(&document, "rotation")?.clone())
            .map_err(|_| "rotation cannot be read")?;
    let phase = rotation.as_ref().map_or(Phase::Standby, |rotation| rotation.phase);
    let mut keys = keys.into_iter();
    match (keys.next(), keys.next(), keys.next()) {
        (None, ..) => Err("it has no keys".into()),
        (Some(current), None, _) if phase == Phase::Standby => {
            Ok(Authority::from_parts(cluster, current, None, rotation))
        }
        (Some(current), Some(new), None) if phase != Phase::Standby => {
            Ok(Authority::from_parts(cluster, current, Some(new), rotation))
        }
        _ => Err(format!("the number of its keys does not fit the phase {phase}")),
    }
}

fn decode_key(key: &Value, cluster: &ClusterName) -> Result<AuthorityKey, String> {
    let certificate = Certificate::from_pem(secret_json::text(key, "certificate")?).map_err(reason)?;
    let ssh = PrivateKey::from_pem(secret_json::text(key, "ssh_key")?)
        .map_err(Into::into)
        .and_then(SshAuthority::new);
    let ssh = ssh.map_err(|error| format!("ssh_key: {error}"))?;
    let key = PrivateKey::from_pem(secret_json::text(key, "key")?).map_err(reason)?;
    if !key.belongs_to(&certificate) {
        return Err(refit_identity::Error::KeyMismatch.to_string());
    }
    if !certificate.is_authority() || !certificate.is_self_signed() {
        return Err("its certificate is not one of an authority".into());
    }
    if certificate.claimed_cluster().as_ref() != Some(cluster) {
        return Err(format!("its certificate is not one of cluster {cluster}"));
    }
    Ok(AuthorityKey { certificate, key, ssh })
}

fn reason(error: impl std::fmt::Display) -> String {
    error.to_string()
}
