//! One simulated agent: joins, connects and sends heartbeats over the real protocol.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use refit_identity::{Certificate, Identity, PrivateKey, SERVER_NAME, client_config};
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::join_service_client::JoinServiceClient;
use refit_proto::agent::v1::{
    GetAuthoritiesRequest, HeartbeatReply, HeartbeatRequest, JoinRequest, RoleRequest, Rotation,
};
use refit_proto::v1::{AgentRole, Edition, Upgrader};
use refit_proto::{DialError, dial};
use refit_types::{HostId, UpdaterStatus};
use rustls::pki_types::ServerName;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::find::{self, FindAnswer};

/// Heartbeats that wait for the connection: an agent sends one at a time.
const OUTBOX: usize = 2;

/// What can go wrong with a simulated agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The server refused.
    #[error("{0}")]
    Refused(String),
    /// Keys and certificates.
    #[error(transparent)]
    Identity(#[from] refit_identity::Error),
    /// The stream of heartbeats ended.
    #[error("the server ended the stream of heartbeats")]
    Ended,
}

impl From<Status> for AgentError {
    fn from(status: Status) -> Self {
        Self::Refused(format!("{:?}: {}", status.code(), status.message()))
    }
}

/// A host that has joined.
#[derive(Debug, Clone)]
pub struct Joined {
    /// Which one.
    pub host: HostId,
    /// What it shows.
    pub identity: Identity,
}

impl Joined {
    /// Joins as a new host, over a channel that knows the cluster by its pin.
    pub async fn by_token(channel: Channel, token: &str) -> Result<Self, AgentError> {
        Self::with_key(channel, token, PrivateKey::generate()?).await
    }

    /// The same with a key that was made before.
    pub async fn with_key(channel: Channel, token: &str, key: PrivateKey) -> Result<Self, AgentError> {
        let host = HostId::new(Uuid::new_v4());
        let role = RoleRequest {
            role: "node".into(),
            role_code: AgentRole::Node.into(),
            certificate_request: key.signing_request()?,
        };
        let request = JoinRequest {
            token: token.into(),
            host_id: host.to_string(),
            hostname: format!("load-{}", &host.to_string()[..8]),
            roles: vec![role],
        };
        let joined = JoinServiceClient::new(channel).join(request).await?.into_inner();
        let signed = joined.identities.into_iter().next().ok_or(AgentError::Ended)?;
        let authorities = joined.authorities.unwrap_or_default();
        let certificates = authorities.tls_ca_certs.iter().map(|pem| Certificate::from_pem(pem));
        let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
        let identity = Identity::new("current", key, Certificate::from_pem(&signed.tls_cert)?, certificates)?;
        Ok(Self { host, identity })
    }
}

/// One agent with a connection of its own.
pub struct SimulatedAgent {
    outbox: mpsc::Sender<HeartbeatRequest>,
    replies: Streaming<HeartbeatReply>,
    beat: HeartbeatRequest,
    channel: Channel,
    host: HostId,
}

impl SimulatedAgent {
    /// Connects, and opens the stream of heartbeats with a first one.
    pub async fn connect(
        address: &str,
        joined: &Joined,
        labels: usize,
        version: &str,
    ) -> Result<Self, AgentError> {
        let labels = (0..labels).map(|n| (format!("label-{n}"), format!("value-{}", n * 7 % 13)));
        Self::connect_as(address, joined, labels.collect(), version).await
    }

    /// The same with labels of the caller's choice.
    pub async fn connect_as(
        address: &str,
        joined: &Joined,
        labels: HashMap<String, String>,
        version: &str,
    ) -> Result<Self, AgentError> {
        let name =
            ServerName::try_from(SERVER_NAME).map_err(|error| AgentError::Refused(error.to_string()))?;
        let channel = dial(address, name, client_config(&joined.identity)?).await?;
        let now = Timestamp::now();
        let beat = HeartbeatRequest {
            hostname: format!("load-{}", &joined.host.to_string()[..8]),
            version: version.into(),
            edition: "oss".into(),
            edition_code: Edition::Oss.into(),
            roles: vec!["node".into()],
            role_codes: vec![AgentRole::Node.into()],
            node_labels: HashMap::new(),
            instance_labels: labels,
            upgrader: "binary".into(),
            upgrader_code: Upgrader::Binary.into(),
            updater_status: String::new(),
            session: Uuid::new_v4().to_string(),
            started_at: Some(prost_types::Timestamp { seconds: now.as_second(), nanos: 0 }),
            rotation: Some(Rotation::default()),
            hint_acknowledged: 0,
            os: refit_types::HOST_OS.into(),
            os_version: String::new(),
            arch: refit_types::host_arch().into(),
        };
        let (outbox, sent) = mpsc::channel(OUTBOX);
        outbox.send(beat.clone()).await.map_err(|_| AgentError::Ended)?;
        let mut client = AgentServiceClient::new(channel.clone());
        let replies = client.heartbeat(ReceiverStream::new(sent)).await?.into_inner();
        let mut agent = Self { outbox, replies, beat, channel, host: joined.host };
        agent.reply().await?;
        Ok(agent)
    }

    /// Sends a heartbeat and waits for the answer.
    pub async fn beat(&mut self) -> Result<HeartbeatReply, AgentError> {
        self.outbox.send(self.beat.clone()).await.map_err(|_| AgentError::Ended)?;
        self.reply().await
    }

    /// Makes the least call that needs the agent's certificate.
    pub async fn empty_call(&self) -> Result<(), AgentError> {
        let mut client = AgentServiceClient::new(self.channel.clone());
        client.get_authorities(GetAuthoritiesRequest {}).await?;
        Ok(())
    }

    /// What the server has to say next, by itself or in answer.
    pub async fn next_reply(&mut self) -> Result<HeartbeatReply, AgentError> {
        self.reply().await
    }

    /// Sends a heartbeat; the answer is one of the next replies.
    pub async fn send(&mut self) -> Result<(), AgentError> {
        self.outbox.send(self.beat.clone()).await.map_err(|_| AgentError::Ended)
    }

    /// Asks what this host should do, as its updater would.
    pub async fn find(&mut self) -> Result<FindAnswer, AgentError> {
        find::ask(&mut self.channel, self.host).await
    }

    /// Says from now on that the updater was woken for that attempt.
    pub fn acknowledge(&mut self, attempt: u64) {
        self.beat.hint_acknowledged = attempt;
    }

    /// Carries that status of its updater from now on.
    pub fn set_updater_status(&mut self, status: &UpdaterStatus) {
        self.beat.updater_status = serde_json::to_string(status).unwrap_or_default();
    }

    /// Goes by that name from now on.
    pub fn set_hostname(&mut self, hostname: &str) {
        self.beat.hostname = hostname.into();
    }

    /// Reports another version from now on.
    pub fn set_version(&mut self, version: &str) {
        self.beat.version = version.into();
    }

    /// Sends heartbeats at that pace, counting each answer, until the stream ends.
    pub async fn keep_beating(&mut self, every: Duration, mut counted: impl FnMut()) -> AgentError {
        let mut pace = tokio::time::interval(every);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            match self.beat().await {
                Ok(_) => counted(),
                Err(error) => return error,
            }
        }
    }

    async fn reply(&mut self) -> Result<HeartbeatReply, AgentError> {
        self.replies.message().await?.ok_or(AgentError::Ended)
    }
}
