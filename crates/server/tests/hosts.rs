//! The agent API called directly: joining, renewal, and malformed heartbeats.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;

#[path = "hosts/heartbeats.rs"]
mod heartbeats;
#[path = "hosts/join.rs"]
mod join;
#[path = "hosts/renewal.rs"]
mod renewal;

use std::time::Duration;

use cluster::{HOUR, authority_in, connect, empty_store, settings, start, user};
use jiff::Timestamp;
use refit_authority::Authority;
use refit_identity::{Certificate, HostCertificates, Identity, PrivateKey, Role, SigningRequest};
use refit_proto::agent::v1::join_service_client::JoinServiceClient;
use refit_proto::agent::v1::{JoinRequest, JoinResponse, RoleRequest};
use refit_proto::nodes::v1::node_service_client::NodeServiceClient;
use refit_proto::nodes::v1::{ListNodesRequest, Node};
use refit_server::{Server, Settings};
use refit_types::{AgentRole, HostId};
use tempfile::TempDir;
use tonic::Status;
use tonic::transport::Channel;
use uuid::Uuid;

const TOKEN: &str = "a-token-of-the-configuration";

/// A server that lets hosts join as node and kube with [`TOKEN`], and the key with which its cluster signs.
struct Cluster {
    server: Server,
    authority: Authority,
    store: String,
    _directory: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = empty_store().await;
        let token = refit_authority::StaticToken {
            token: TOKEN.into(),
            roles: vec![AgentRole::Node, AgentRole::Kube],
        };
        let settings = Settings {
            backend: Some(store.clone()),
            static_tokens: Some(vec![token]),
            ..settings(directory.path())
        };
        let server = start(settings).await.unwrap();
        Self { server, authority: authority_in(&store).await, store, _directory: directory }
    }

    /// A connection that shows no certificate.
    async fn nobody(&self) -> Channel {
        connect(&self.server, None).await
    }

    async fn admin(&self) -> NodeServiceClient<Channel> {
        let admin = user(&self.authority, Role::Admin, HOUR, Timestamp::now());
        NodeServiceClient::new(connect(&self.server, Some(&admin)).await)
    }

    /// A host that has joined as a node.
    async fn joined(&self, id: HostId) -> Identity {
        let channel = self.nobody().await;
        let key = PrivateKey::generate().unwrap();
        let answer = join(&channel, joining(id, &[("node", &key)])).await.unwrap();
        let signed = &answer.identities[0];
        let certificates = HostCertificates {
            tls: Certificate::from_pem(&signed.tls_cert).unwrap(),
            ssh: signed.ssh_cert.clone(),
        };
        let ssh: Vec<String> = self.authority.ssh_authorities().collect();
        Identity::for_host(
            "current",
            key,
            certificates,
            self.authority.certificates().cloned().collect::<Vec<_>>(),
            ssh,
        )
        .unwrap()
    }

    /// What the authority signs for a host that nobody asked about.
    fn signed(&self, id: HostId, role: AgentRole, ttl: Duration, now: Timestamp) -> Identity {
        let key = PrivateKey::generate().unwrap();
        let request = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
        let issued = self.authority.issue_host(&request, id, role, ttl, now).unwrap();
        Identity::new("current", key, issued.tls, self.authority.certificates().cloned()).unwrap()
    }

    /// The whole fleet, in one page.
    async fn fleet(&self) -> Vec<Node> {
        let all = ListNodesRequest { page_size: 1000, ..Default::default() };
        self.admin().await.list_nodes(all).await.unwrap().into_inner().nodes
    }
}

fn new_host() -> HostId {
    HostId::new(Uuid::new_v4())
}

fn joining(id: HostId, roles: &[(&str, &PrivateKey)]) -> JoinRequest {
    let roles = roles.iter().map(|(role, key)| role_request(role, key));
    JoinRequest {
        token: TOKEN.into(),
        host_id: id.to_string(),
        hostname: "web".into(),
        roles: roles.collect(),
    }
}

fn role_request(role: &str, key: &PrivateKey) -> RoleRequest {
    let certificate_request = key.signing_request().unwrap();
    RoleRequest { role: role.into(), certificate_request, ..Default::default() }
}

async fn join(channel: &Channel, request: JoinRequest) -> Result<JoinResponse, Status> {
    Ok(JoinServiceClient::new(channel.clone()).join(request).await?.into_inner())
}
