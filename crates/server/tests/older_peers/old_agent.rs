//! An agent of 0.1: it knows the messages of that release only, and reads phases as text.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use refit_identity::{
    Authorities, Certificate, HostCertificates, Identities, Identity, IdentitySlot, MemoryIdentities,
    PrivateKey, SERVER_NAME, Step, client_config, next_step,
};
use refit_released::v0_1::agent::v1 as wire;
use refit_released::v0_1::agent::v1::agent_service_client::AgentServiceClient;
use refit_released::v0_1::agent::v1::join_service_client::JoinServiceClient;
use refit_server::Server;
use refit_types::{AgentRole, HostId, UpdaterStatus};
use rustls::pki_types::ServerName;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::cluster::connect;
use crate::world::{OLD, SOON, TOKEN};

const ROLE: AgentRole = AgentRole::Node;
/// How long it is silent at most: less than a real one, so that a test need not wait.
const PACE: Duration = Duration::from_secs(2);
/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

pub struct OldAgent {
    pub host: HostId,
    pub beat: wire::HeartbeatRequest,
    identities: Identities,
    address: String,
    outbox: UnboundedSender<wire::HeartbeatRequest>,
    replies: Option<Streaming<wire::HeartbeatReply>>,
}

impl OldAgent {
    /// Joins with the token, opens its stream, and sends the first heartbeat.
    pub async fn join(server: &Server, environment: &str) -> Self {
        let host = HostId::new(Uuid::new_v4());
        let key = PrivateKey::generate().unwrap();
        let request = wire::JoinRequest {
            token: TOKEN.into(),
            host_id: host.to_string(),
            hostname: "old".into(),
            roles: vec![role_request(&key)],
        };
        let joined = JoinServiceClient::new(connect(server, None).await).join(request).await.unwrap();
        let joined = joined.into_inner();
        let authorities = authorities(joined.authorities.unwrap());
        let signed = joined.identities.into_iter().find(|signed| signed.role == "node").unwrap();
        let identities = Identities::new(Arc::new(MemoryIdentities::default()));
        let identity = identity(IdentitySlot::Current, key, signed, &authorities);
        identities.store(ROLE, IdentitySlot::Current, &identity).await.unwrap();
        let beat = wire::HeartbeatRequest {
            hostname: "old".into(),
            version: OLD.into(),
            edition: "oss".into(),
            roles: vec!["node".into()],
            instance_labels: [("environment".to_owned(), environment.to_owned())].into(),
            upgrader: "binary".into(),
            session: Uuid::new_v4().to_string(),
            started_at: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            ..Default::default()
        };
        let address = server.local_address().to_string();
        let mut agent = Self { host, beat, identities, address, outbox: unbounded().0, replies: None };
        agent.set_updater(&UpdaterStatus { agent_updates_enabled: true, ..Default::default() });
        agent.open().await.unwrap();
        agent
    }

    pub fn set_updater(&mut self, status: &UpdaterStatus) {
        self.beat.updater_status = serde_json::to_string(status).unwrap();
    }

    async fn channel(&self) -> Result<Channel, Status> {
        let stored = self.identities.load(ROLE).await.unwrap();
        let tls = client_config(stored.active().unwrap()).unwrap();
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let channel = refit_proto::dial(&self.address, name, tls).await;
        channel.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Opens the stream as who it is now, and says where it stands in the rotation.
    async fn open(&mut self) -> Result<(), Status> {
        let state = self.identities.load(ROLE).await.unwrap().state;
        self.beat.rotation = Some(wire::Rotation { id: state.rotation_id, phase: state.phase.to_string() });
        let (outbox, inbox) = unbounded();
        let mut client = AgentServiceClient::new(self.channel().await?);
        outbox.unbounded_send(self.beat.clone()).unwrap();
        (self.outbox, self.replies) = (outbox, Some(client.heartbeat(inbox).await?.into_inner()));
        Ok(())
    }

    /// Tells how it is.
    pub fn send(&self) {
        // A stream that has ended is opened anew by whoever waits for a reply, with this heartbeat.
        self.outbox.unbounded_send(self.beat.clone()).ok();
    }

    /// Waits for a reply like that, through new connections if need be.
    pub async fn until(&mut self, wanted: impl Fn(&wire::HeartbeatReply) -> bool) -> wire::HeartbeatReply {
        let mut last = None;
        let waiting = async {
            loop {
                let Some(replies) = &mut self.replies else {
                    if self.open().await.is_err() {
                        tokio::time::sleep(AGAIN).await;
                    }
                    continue;
                };
                // An agent tells how it is time and again.
                match tokio::time::timeout(PACE, replies.message()).await {
                    Ok(Ok(Some(reply))) if wanted(&reply) => return reply,
                    Ok(Ok(Some(reply))) => last = Some(reply),
                    Ok(_) => self.replies = None,
                    Err(_) => self.send(),
                }
            }
        };
        let found = tokio::time::timeout(SOON, waiting).await;
        found.unwrap_or_else(|_| panic!("no such reply came; the last was {last:?}"))
    }

    /// Carries out the phase that the server is in, and reports it. What 0.1 did.
    pub async fn follow(&mut self) {
        let mut client = AgentServiceClient::new(self.channel().await.unwrap());
        let told = client.get_authorities(wire::GetAuthoritiesRequest {}).await.unwrap().into_inner();
        let authorities = authorities(told);
        for _ in 0..8 {
            let stored = self.identities.load(ROLE).await.unwrap();
            match next_step(&stored, &authorities).unwrap() {
                Step::Nothing => {
                    self.open().await.unwrap();
                    return;
                }
                Step::Request { into } => self.renew(into).await,
                Step::Rejoin => panic!("the host was left behind"),
                step => self.identities.carry_out(ROLE, &step).await.unwrap(),
            }
        }
        panic!("the rotation did not converge");
    }

    async fn renew(&self, into: IdentitySlot) {
        let key = PrivateKey::generate().unwrap();
        let request = wire::RenewRequest { role: Some(role_request(&key)) };
        let mut client = AgentServiceClient::new(self.channel().await.unwrap());
        let renewed = client.renew(request).await.unwrap().into_inner();
        let authorities = authorities(renewed.authorities.unwrap());
        let identity = identity(into, key, renewed.identity.unwrap(), &authorities);
        self.identities.store(ROLE, into, &identity).await.unwrap();
    }
}

fn role_request(key: &PrivateKey) -> wire::RoleRequest {
    wire::RoleRequest { role: "node".into(), certificate_request: key.signing_request().unwrap() }
}

/// As 0.1 read it: a phase that is no text of its own is an error.
fn authorities(from: wire::Authorities) -> Authorities {
    let rotation = from.rotation.unwrap_or_default();
    Authorities {
        tls: from.tls_ca_certs.iter().map(|pem| Certificate::from_pem(pem).unwrap()).collect(),
        ssh: from.ssh_ca_certs,
        rotation_id: rotation.id,
        phase: rotation.phase.parse().unwrap(),
    }
}

fn identity(slot: IdentitySlot, key: PrivateKey, signed: wire::SignedIdentity, by: &Authorities) -> Identity {
    let tls = Certificate::from_pem(&signed.tls_cert).unwrap();
    let certificates = HostCertificates { tls, ssh: signed.ssh_cert };
    Identity::for_host(slot.as_str(), key, certificates, by.tls.clone(), by.ssh.clone()).unwrap()
}
