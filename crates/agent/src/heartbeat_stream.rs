//! The open stream of heartbeats: what is reported, when, and how long a reply may take.

use std::time::Duration;

use jiff::Timestamp;
use refit_identity::Identity;
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::{GetAuthoritiesRequest, HeartbeatReply, HeartbeatRequest, Rotation};
use refit_proto::{code_of, codes_of};
use refit_types::{AgentRole, Edition, Labels, Platform, UpgraderKind, Version};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::{ProxyAddress, RpcError, UpdaterReport, convert};

/// Heartbeats queued for the connection: one in flight, one next.
const OUTBOX: usize = 2;
/// A working server replies to a heartbeat at once.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Everything that a heartbeat reports, as it is at that moment.
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
    pub(crate) platform: Option<Platform>,
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
        let platform =
            |part: fn(&Platform) -> &str| self.platform.as_ref().map(part).unwrap_or_default().to_owned();
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
            os: platform(|platform| &platform.os),
            os_version: platform(|platform| &platform.os_version),
            arch: platform(|platform| &platform.arch),
        }
    }

    /// Returns when something changed that the control plane should know at once.
    async fn changed(&mut self) {
        // Labels without commands close their channel at once, which must not hide changes of the others.
        tokio::select! {
            Ok(()) = self.instance_labels.changed() => {}
            Ok(()) = self.node_labels.changed() => {}
            Ok(()) = self.updater.changed() => {}
            else => std::future::pending().await,
        }
    }
}

/// A connection with an open stream of heartbeats.
pub(crate) struct HeartbeatStream {
    channel: Channel,
    outbox: mpsc::Sender<HeartbeatRequest>,
    replies: Streaming<HeartbeatReply>,
    /// When the next heartbeat is due at the latest.
    due: tokio::time::Instant,
    /// When the server has to have replied to the last one.
    reply_by: Option<tokio::time::Instant>,
}

impl HeartbeatStream {
    /// Connects as `identity` and sends the first heartbeat; the reply proves that the server accepts it.
    pub(crate) async fn start(
        proxy: &ProxyAddress,
        identity: &Identity,
        source: &mut HeartbeatSource,
    ) -> Result<(Self, HeartbeatReply), RpcError> {
        let channel = convert::connect(proxy, identity).await?;
        let (outbox, sent) = mpsc::channel(OUTBOX);
        let gone = || Status::unavailable("the server ended the connection");
        outbox.send(source.heartbeat()).await.map_err(|_| gone())?;
        let mut client = AgentServiceClient::new(channel.clone());
        let opening = async {
            let mut replies = client.heartbeat(ReceiverStream::new(sent)).await?.into_inner();
            let first = replies.message().await?.ok_or_else(gone)?;
            Ok::<_, Status>((replies, first))
        };
        let (replies, first) = tokio::time::timeout(REPLY_TIMEOUT, opening)
            .await
            .map_err(|_| Status::deadline_exceeded("the server does not reply"))??;
        let due = tokio::time::Instant::now() + interval(&first);
        Ok((Self { channel, outbox, replies, due, reply_by: None }, first))
    }

    /// Sends heartbeats when they are due until the server replies.
    pub(crate) async fn next_reply(
        &mut self,
        source: &mut HeartbeatSource,
    ) -> Result<HeartbeatReply, RpcError> {
        loop {
            let reply_by = self.reply_by;
            let overdue = async {
                match reply_by {
                    Some(by) => tokio::time::sleep_until(by).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reply = self.replies.message() => {
                    let reply = reply?.ok_or_else(|| Status::unavailable("the server ended the connection"))?;
                    self.reply_by = None;
                    self.due = tokio::time::Instant::now() + interval(&reply);
                    return Ok(reply);
                }
                () = tokio::time::sleep_until(self.due) => self.send(source).await?,
                () = source.changed() => self.send(source).await?,
                () = overdue => return Err(Status::deadline_exceeded("the server does not reply to heartbeats").into()),
            }
        }
    }

    /// Sends a heartbeat now.
    pub(crate) async fn send(&mut self, source: &mut HeartbeatSource) -> Result<(), RpcError> {
        let now = tokio::time::Instant::now();
        self.reply_by.get_or_insert(now + REPLY_TIMEOUT);
        self.due = now + REPLY_TIMEOUT;
        let sent = self.outbox.send(source.heartbeat()).await;
        sent.map_err(|_| Status::unavailable("the server ended the connection").into())
    }

    /// The cluster's authorities as the server knows them now.
    pub(crate) async fn authorities(&self) -> Result<refit_identity::Authorities, RpcError> {
        let mut client = AgentServiceClient::new(self.channel.clone());
        convert::authorities(client.get_authorities(GetAuthoritiesRequest {}).await?.into_inner())
    }
}

/// The interval that the server asks for, with jitter so that a fleet does not report in step.
fn interval(reply: &HeartbeatReply) -> Duration {
    const SLOWEST: Duration = Duration::from_secs(300);
    let asked = reply.next.and_then(|next| Duration::try_from(next).ok()).unwrap_or(SLOWEST);
    asked.clamp(Duration::from_secs(1), SLOWEST).mul_f64(rand::random_range(0.8..1.0))
}
