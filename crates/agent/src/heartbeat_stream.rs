use std::time::Duration;

use jiff::Timestamp;
use refit_identity::Identity;
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::{GetAuthoritiesRequest, HeartbeatReply, HeartbeatRequest, Rotation};
use refit_proto::{code_of, codes_of};
use refit_types::{AgentRole, Edition, Labels, UpgraderKind, Version};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::{ProxyAddress, RpcError, UpdaterReport, convert};

/// Heartbeats that wait for the connection: one is under way, one may be next.
const OUTBOX: usize = 2;
/// A server that works answers a heartbeat at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// What the agent says of itself, always as it is now.
#[derive(Debug, Clone)]
pub(crate) struct HeartbeatSource {
    pub(crate) hostname: String,
    pub(crate) version: Version,
    pub(crate) edition: Edition,
    pub(crate) roles: Vec<AgentRole>,
    pub(crate) session: String,
    pub(crate) started_at: Timestamp,
    pub(crate) instance_labels: watch::Receiver<Labels>,
    pub(crate) node_labels: watch::Receiver<Labels>,
    pub(crate) updater: watch::Receiver<Option<UpdaterReport>>,
    pub(crate) rotation: Rotation,
    /// The attempt that the updater was last woken for.
    pub(crate) hint_acknowledged: u64,
}

impl HeartbeatSource {
    fn heartbeat(&mut self) -> HeartbeatRequest {
        let pairs =
            |labels: &Labels| labels.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let updater = self.updater.borrow_and_update().clone();
        let upgrader = if updater.is_some() { UpgraderKind::Binary } else { UpgraderKind::None };
        let roles: Vec<String> = self.roles.iter().map(ToString::to_string).collect();
        HeartbeatRequest {
            hostname: self.hostname.clone(),
            version: self.version.to_string(),
            edition: self.edition.to_string(),
            edition_code: code_of::<refit_proto::v1::Edition>(self.edition.as_str()),
            role_codes: codes_of::<refit_proto::v1::AgentRole>(&roles),
            roles,
            node_labels: pairs(&self.node_labels.borrow_and_update()),
            instance_labels: pairs(&self.instance_labels.borrow_and_update()),
            upgrader: upgrader.to_string(),
            upgrader_code: code_of::<refit_proto::v1::Upgrader>(upgrader.as_str()),
            updater_status: updater.map(|report| report.text).unwrap_or_default(),
            session: self.session.clone(),
            started_at: Some(prost_types::Timestamp {
                seconds: self.started_at.as_second(),
                nanos: self.started_at.subsec_nanosecond().max(0),
            }),
            rotation: Some(self.rotation.clone()),
            hint_acknowledged: self.hint_acknowledged,
        }
    }

    /// Returns when something changed that the control plane should know at once. A source that is gone
    /// changes no more.
    async fn changed(&mut self) {
        // A source without commands is gone from the start, and must not silence the others.
        tokio::select! {
            Ok(()) = self.instance_labels.changed() => {}
            Ok(()) = self.node_labels.changed() => {}
            Ok(()) = self.updater.changed() => {}
            else => std::future::pending().await,
        }
    }
}

/// A connection over which heartbeats go.
pub(crate) struct HeartbeatStream {
    channel: Channel,
    outbox: mpsc::Sender<HeartbeatRequest>,
    replies: Streaming<HeartbeatReply>,
    /// When the next heartbeat is due at the latest.
    due: tokio::time::Instant,
    /// Until when the server has to answer the last one.
    answer_by: Option<tokio::time::Instant>,
}

impl HeartbeatStream {
    /// Connects as `identity` and sends the first heartbeat; the server's answer proves that it knows us.
    pub(crate) async fn start(
        proxy: &ProxyAddress,
        identity: &Identity,
        portrait: &mut HeartbeatSource,
    ) -> Result<(Self, HeartbeatReply), RpcError> {
        let channel = convert::connect(proxy, identity).await?;
        let (outbox, sent) = mpsc::channel(OUTBOX);
        let gone = || Status::unavailable("the server ended the connection");
        outbox.send(portrait.heartbeat()).await.map_err(|_| gone())?;
        let mut client = AgentServiceClient::new(channel.clone());
        let opening = async {
            let mut replies = client.heartbeat(ReceiverStream::new(sent)).await?.into_inner();
            let first = replies.message().await?.ok_or_else(gone)?;
            Ok::<_, Status>((replies, first))
        };
        let (replies, first) = tokio::time::timeout(ANSWER_WITHIN, opening)
            .await
            .map_err(|_| Status::deadline_exceeded("the server does not answer"))??;
        let due = tokio::time::Instant::now() + next(&first);
        Ok((Self { channel, outbox, replies, due, answer_by: None }, first))
    }

    /// Keeps the heart beating until the server says something.
    pub(crate) async fn next(&mut self, portrait: &mut HeartbeatSource) -> Result<HeartbeatReply, RpcError> {
        loop {
            let answer_by = self.answer_by;
            let overdue = async {
                match answer_by {
                    Some(by) => tokio::time::sleep_until(by).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reply = self.replies.message() => {
                    let reply = reply?.ok_or_else(|| Status::unavailable("the server ended the connection"))?;
                    self.answer_by = None;
                    self.due = tokio::time::Instant::now() + next(&reply);
                    return Ok(reply);
                }
                () = tokio::time::sleep_until(self.due) => self.beat(portrait).await?,
                () = portrait.changed() => self.beat(portrait).await?,
                () = overdue => return Err(Status::deadline_exceeded("the server does not answer heartbeats").into()),
            }
        }
    }

    /// Tells the server at once how the agent is.
    pub(crate) async fn beat(&mut self, portrait: &mut HeartbeatSource) -> Result<(), RpcError> {
        let now = tokio::time::Instant::now();
        self.answer_by.get_or_insert(now + ANSWER_WITHIN);
        self.due = now + ANSWER_WITHIN;
        let sent = self.outbox.send(portrait.heartbeat()).await;
        sent.map_err(|_| Status::unavailable("the server ended the connection").into())
    }

    /// What the server says of the authorities now.
    pub(crate) async fn authorities(&self) -> Result<refit_identity::Authorities, RpcError> {
        let mut client = AgentServiceClient::new(self.channel.clone());
        convert::authorities(client.get_authorities(GetAuthoritiesRequest {}).await?.into_inner())
    }
}

/// The pace that the server asks for, with a jitter so that a fleet does not beat as one.
fn next(reply: &HeartbeatReply) -> Duration {
    const SLOWEST: Duration = Duration::from_secs(300);
    let asked = reply.next.and_then(|next| Duration::try_from(next).ok()).unwrap_or(SLOWEST);
    asked.clamp(Duration::from_secs(1), SLOWEST).mul_f64(rand::random_range(0.8..1.0))
}
