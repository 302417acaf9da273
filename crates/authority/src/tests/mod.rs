//! Tests of the authority, and of what `refit-identity` does with what an authority signed.

mod agent_rotation;
mod agent_store;
mod authority;
mod host;
mod identity;
mod issue;
mod rotation;
mod secrets;
mod tls;
mod tokens;
mod trust;

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, SanType,
};
use refit_types::{AgentRole, HostId};

use crate::Authority;
use crate::record::AuthorityKey;
use refit_identity::{Certificate, Identity, PrivateKey, Roles, SigningRequest};

const HOUR: Duration = Duration::from_secs(3600);

fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn authority(cluster: &str) -> Authority {
    Authority::create(cluster.parse().unwrap(), noon()).unwrap()
}

fn request(key: &PrivateKey) -> SigningRequest {
    SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap()
}

fn user_at(authority: &Authority, now: Timestamp) -> Identity {
    let key = PrivateKey::generate().unwrap();
    let roles: Roles = "viewer,rollout-editor".parse().unwrap();
    let certificate =
        authority.issue_user(&request(&key), &"alice".parse().unwrap(), &roles, HOUR, now).unwrap();
    Identity::new("alice", key, certificate, authority.certificates().cloned()).unwrap()
}

fn user(authority: &Authority) -> Identity {
    user_at(authority, noon())
}

fn host_id() -> HostId {
    "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55".parse().unwrap()
}

fn host_at(authority: &Authority, name: &str, now: Timestamp) -> Identity {
    let key = PrivateKey::generate().unwrap();
    let issued = authority.issue_host(&request(&key), host_id(), AgentRole::Node, HOUR, now).unwrap();
    let authorities = authority.certificates().cloned();
    Identity::for_host(name, key, issued, authorities, authority.ssh_authorities()).unwrap()
}

fn server_at(authority: &Authority, now: Timestamp) -> (PrivateKey, Certificate) {
    let key = PrivateKey::generate().unwrap();
    let names = ["localhost".try_into().unwrap(), "127.0.0.1".try_into().unwrap(), "::1".try_into().unwrap()];
    let certificate =
        authority.issue_server(&request(&key), &"s1".parse().unwrap(), &names, HOUR, now).unwrap();
    (key, certificate)
}

/// A certificate that no method of the authority would make.
fn odd(
    authority: &Authority,
    purposes: &[ExtendedKeyUsagePurpose],
    names: Vec<SanType>,
    change: impl FnOnce(&mut CertificateParams),
) -> (PrivateKey, Certificate) {
    let key = PrivateKey::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = purposes.to_vec();
    params.subject_alt_names = names;
    change(&mut params);
    let certificate = authority.signing().sign(&params, &request(&key)).unwrap();
    (key, certificate)
}

/// The authority `of`, key and name, in a certificate that `by` signed for it.
fn counterfeit(of: &Authority, by: &Authority) -> Authority {
    let (key, ssh) = (of.signing().key.clone(), of.signing().ssh.clone());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, of.cluster().as_str());
    params.distinguished_name.push(DnType::CommonName, format!("{} Refit CA", of.cluster()));
    let certificate = by.signing().sign(&params, &request(&key)).unwrap();
    Authority::from_parts(of.cluster().clone(), AuthorityKey { certificate, key, ssh }, None, None)
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}
