//! The services of hosts: joining, renewing identities, and the stream of heartbeats.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, stream};
use jiff::Timestamp;
use refit_authority::{HOST_TTL, TokenStore};
use refit_identity::{Principal, SigningRequest};
use refit_proto::agent::v1 as wire;
use refit_proto::agent::v1::agent_service_server::AgentService;
use refit_proto::agent::v1::join_service_server::JoinService;
use refit_proto::code_of;
use refit_types::{
    AgentRole, HostId, Labels, Platform, Report, RotationMark, Session, StoredWord, UpdaterStatus,
};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

use super::{nodes, store_status, timestamp, token_status};
use crate::access::{Caller, caller};
use crate::authorities::{Authorities, Current};
use crate::fleet::{Connection, Fleet, Heartbeat, HeartbeatResult, JoinRefused};
use crate::limiter::Limiter;
use crate::rollout::Rollouts;

/// How often an agent tells how it is when nothing changes.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(30);
/// An agent that is silent for three heartbeats is gone.
const SILENCE: Duration = Duration::from_secs(90);
/// Host names are no longer than this.
const LONGEST_HOSTNAME: usize = 253;

/// How hosts join, and what they do as part of the cluster.
#[derive(Clone)]
pub(crate) struct Agents {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) rollouts: Arc<Rollouts>,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) now: fn() -> Timestamp,
    pub(crate) stop: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl JoinService for Agents {
    async fn join(
        &self,
        request: Request<wire::JoinRequest>,
    ) -> Result<Response<wire::JoinResponse>, Status> {
        let caller = caller(&request)?.clone();
        let (address, request) = (caller.peer.address.ip(), request.into_inner());
        if let Err(wait) = self.limiter.check(address, Instant::now()) {
            return Err(Status::resource_exhausted(format!(
                "too many attempts to join from {address} were refused; try again in {} s",
                wait.as_secs().max(1)
            )));
        }
        let outcome = self.admit(&caller, &request).await;
        match &outcome {
            Ok(_) => tracing::info!(
                target: "audit", host = request.host_id, hostname = shown(&request.hostname), from = %address, "a host joined"
            ),
            Err(status) => self.note_refusal(address, &request, status),
        }
        outcome.map(Response::new)
    }
}

impl Agents {
    async fn admit(
        &self,
        caller: &Caller,
        request: &wire::JoinRequest,
    ) -> Result<wire::JoinResponse, Status> {
        let host = HostId::from_str(&request.host_id)
            .map_err(|error| Status::invalid_argument(format!("host_id: {error}")))?;
        let hostname = hostname(&request.hostname)?;
        let texts: Vec<String> = request.roles.iter().map(wire::RoleRequest::role_text).collect();
        let roles = nodes::parse_roles(&texts)?;
        let keys = request.roles.iter().map(key_of).collect::<Result<Vec<_>, _>>()?;
        self.tokens.check(&request.token, &roles, (self.now)()).await.map_err(token_status)?;
        let proven = matches!(caller.principal(), Some(Principal::Host { id, .. }) if *id == host);
        self.fleet.join(host, hostname, &roles, proven).await.map_err(|refused| match refused {
            JoinRefused::Registered(_) => Status::already_exists(refused.to_string()),
            JoinRefused::Store(error) => store_status(error),
        })?;
        let current = self.authorities.current();
        let identities = roles.iter().zip(&keys).map(|(role, key)| self.sign(&current, key, host, *role));
        Ok(wire::JoinResponse {
            cluster: current.authority().cluster().to_string(),
            identities: identities.collect::<Result<_, _>>()?,
            authorities: Some(current.on_the_wire()),
        })
    }

    /// Counts and tells what was refused, without the token.
    fn note_refusal(&self, address: IpAddr, request: &wire::JoinRequest, status: &Status) {
        if is_the_callers_fault(status.code()) {
            self.limiter.charge(address, Instant::now());
        }
        tracing::warn!(
            target: "audit", host = shown(&request.host_id), hostname = shown(&request.hostname), from = %address,
            reason = status.message(), "a host was refused"
        );
    }

    fn sign(
        &self,
        current: &Current,
        key: &SigningRequest,
        host: HostId,
        role: AgentRole,
    ) -> Result<wire::SignedIdentity, Status> {
        let signed = current.authority().issue_host(key, host, role, HOST_TTL, (self.now)());
        let signed = signed.map_err(|error| Status::internal(error.to_string()))?;
        Ok(wire::SignedIdentity {
            role: role.to_string(),
            role_code: code_of::<refit_proto::v1::AgentRole>(role.as_str()),
            tls_cert: signed.tls.to_pem(),
            ssh_cert: signed.ssh,
            expires: Some(timestamp(signed.tls.not_after())),
        })
    }
}

#[tonic::async_trait]
impl AgentService for Agents {
    async fn renew(
        &self,
        request: Request<wire::RenewRequest>,
    ) -> Result<Response<wire::RenewResponse>, Status> {
        let (host, role) = caller(&request)?.host()?;
        let asked = request.into_inner().role.unwrap_or_default();
        let wanted = AgentRole::from_str(&asked.role_text())
            .map_err(|error| Status::invalid_argument(format!("role: {error}")))?;
        if wanted != role {
            return Err(Status::permission_denied(format!(
                "an identity of the role {role} can be renewed for that role only, not for {wanted}"
            )));
        }
        if !self.fleet.knows(host).await.map_err(store_status)? {
            return Err(removed(host));
        }
        let current = self.authorities.current();
        let identity = self.sign(&current, &key_of(&asked)?, host, role)?;
        tracing::info!(target: "audit", %host, %role, phase = %current.mark().phase, "renewed an identity");
        Ok(Response::new(wire::RenewResponse {
            identity: Some(identity),
            authorities: Some(current.on_the_wire()),
        }))
    }

    async fn get_authorities(
        &self,
        _: Request<wire::GetAuthoritiesRequest>,
    ) -> Result<Response<wire::Authorities>, Status> {
        Ok(Response::new(self.authorities.current().on_the_wire()))
    }

    type HeartbeatStream = Pin<Box<dyn Stream<Item = Result<wire::HeartbeatReply, Status>> + Send>>;

    async fn heartbeat(
        &self,
        request: Request<Streaming<wire::HeartbeatRequest>>,
    ) -> Result<Response<Self::HeartbeatStream>, Status> {
        let caller = caller(&request)?.clone();
        let (host, _) = caller.host()?;
        let pulse = Pulse {
            departure: Departure {
                fleet: self.fleet.clone(),
                host,
                connection: self.fleet.connect(),
                session: None,
                stop: self.stop.clone(),
            },
            changes: self.authorities.subscribe(),
            agents: self.clone(),
            incoming: request.into_inner(),
            expires: caller.peer.expires(),
            caller,
            host,
            duplicate: false,
            told: None,
            began: Instant::now(),
        };
        Ok(Response::new(Box::pin(stream::unfold(Some(pulse), |pulse| async move {
            let mut pulse = pulse?;
            match pulse.next().await {
                Some(Ok(reply)) => Some((Ok(reply), Some(pulse))),
                Some(Err(status)) => Some((Err(status), None)),
                None => None,
            }
        }))))
    }
}

/// One agent's stream of heartbeats, pulled by its connection.
struct Pulse {
    agents: Agents,
    caller: Caller,
    /// When the caller's certificate ends, and the stream with it.
    expires: Option<Timestamp>,
    host: HostId,
    incoming: Streaming<wire::HeartbeatRequest>,
    changes: watch::Receiver<()>,
    duplicate: bool,
    /// The attempt that the host was last told of.
    told: Option<u64>,
    began: Instant,
    departure: Departure,
}

impl Pulse {
    async fn next(&mut self) -> Option<Result<wire::HeartbeatReply, Status>> {
        let mut stop = self.agents.stop.clone();
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        let (expires, now) = (self.expires, (self.agents.now)());
        let expired = async {
            match expires {
                Some(expires) => tokio::time::sleep(left_until(expires, now)).await,
                None => std::future::pending().await,
            }
        };
        let connection = self.departure.connection.clone();
        let is_told = self.told;
        let (fleet, host, session) = (self.agents.fleet.clone(), self.host, self.departure.session);
        // Others may have had the same news: what the host was told already is not told again.
        let news = async {
            loop {
                connection.news.notified().await;
                if session.and_then(|session| fleet.hint(host, session)) != is_told {
                    return;
                }
            }
        };
        tokio::select! {
            message = tokio::time::timeout(SILENCE, self.incoming.message()) => match message {
                Ok(Ok(Some(request))) => Some(self.take(request).await),
                Ok(Ok(None)) | Ok(Err(_)) => None,
                Err(_) => Some(Err(Status::deadline_exceeded("no heartbeat came for 90 s"))),
            },
            _ = self.changes.changed() => Some(self.still_good().map(|()| self.reply())),
            () = news => Some(self.still_good().map(|()| self.reply())),
            () = expired => Some(Err(Status::unauthenticated("the certificate of this stream has expired; connect with a new one"))),
            () = stopped => Some(Err(Status::unavailable("this server is stopping; connect to another"))),
        }
    }

    /// A certificate that has ended, or whose authority is no longer trusted, ends the stream.
    fn still_good(&self) -> Result<(), Status> {
        let trust = &self.agents.authorities.current().trust;
        let principal = self.caller.peer.principal(trust, (self.agents.now)());
        principal.map(drop).map_err(|error| Status::unauthenticated(error.to_string()))
    }

    async fn take(&mut self, request: wire::HeartbeatRequest) -> Result<wire::HeartbeatReply, Status> {
        self.still_good()?;
        if self.agents.rollouts.should_disconnect(self.began) {
            return Err(Status::unavailable("this server has lost its store; connect to another"));
        }
        let heartbeat = heartbeat(request, self.expires)?;
        self.departure.session.get_or_insert(heartbeat.report.session.id);
        let hostname = heartbeat.hostname.clone();
        let connection = &self.departure.connection;
        let heard = self.agents.fleet.heartbeat(self.host, connection, heartbeat).await;
        match heard.map_err(store_status)? {
            HeartbeatResult::Removed => return Err(removed(self.host)),
            HeartbeatResult::Known { duplicate } => {
                if duplicate && !self.duplicate {
                    tracing::warn!(target: "audit", host = %self.host, %hostname, "two processes report as one host");
                }
                self.duplicate = duplicate;
            }
        }
        Ok(self.reply())
    }

    fn reply(&mut self) -> wire::HeartbeatReply {
        let session = self.departure.session;
        let hint = session.and_then(|session| self.agents.fleet.hint(self.host, session));
        self.told = hint;
        wire::HeartbeatReply {
            next: HEARTBEAT_EVERY.try_into().ok(),
            upgrade_due: hint.is_some(),
            attempt: hint.unwrap_or_default(),
            rotation: Some(self.agents.authorities.current().rotation_on_the_wire()),
            duplicate_host: self.duplicate,
        }
    }
}

/// How long until then; nothing if it has passed.
fn left_until(then: Timestamp, now: Timestamp) -> Duration {
    then.duration_since(now).try_into().unwrap_or_default()
}

/// Notes that a host is no longer heard when its stream is dropped. Not when the whole server stops: its
/// own record goes then, and with it the liveness of all its hosts.
struct Departure {
    fleet: Arc<Fleet>,
    host: HostId,
    connection: Arc<Connection>,
    session: Option<Uuid>,
    stop: watch::Receiver<bool>,
}

impl Drop for Departure {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if *self.stop.borrow() {
            return;
        }
        let (fleet, host, stream) = (self.fleet.clone(), self.host, self.connection.stream);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { fleet.disconnected(host, Some(stream), session).await });
        }
    }
}

/// Whether a refusal is held against the caller: a store that is away is not of its doing, and a fleet that
/// joins meanwhile is not made to wait longer.
fn is_the_callers_fault(code: Code) -> bool {
    !matches!(code, Code::Unavailable | Code::Internal | Code::Aborted | Code::DeadlineExceeded)
}

fn removed(host: HostId) -> Status {
    Status::not_found(format!(
        "the host {host} was removed from the cluster; remove its identity and join again"
    ))
}

fn key_of(role: &wire::RoleRequest) -> Result<SigningRequest, Status> {
    SigningRequest::from_pem(&role.certificate_request)
        .map_err(|error| Status::invalid_argument(format!("certificate_request: {error}")))
}

fn hostname(text: &str) -> Result<&str, Status> {
    if text.is_empty() || text.len() > LONGEST_HOSTNAME || text.chars().any(char::is_control) {
        return Err(Status::invalid_argument(format!("hostname: {:?} is not a host's name", shown(text))));
    }
    Ok(text)
}

fn labels(field: &str, map: HashMap<String, String>) -> Result<Labels, Status> {
    let mut labels = Labels::default();
    for (name, value) in &map {
        labels.insert(name, value).map_err(|error| Status::invalid_argument(format!("{field}: {error}")))?;
    }
    Ok(labels)
}

fn heartbeat(
    request: wire::HeartbeatRequest,
    identity_expires: Option<Timestamp>,
) -> Result<Heartbeat, Status> {
    let invalid =
        |field: &str, error: &dyn std::fmt::Display| Status::invalid_argument(format!("{field}: {error}"));
    let started_at = request.started_at.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
    let (edition, upgrader) = (request.edition_text(), request.upgrader_text());
    let rotation = request.rotation.unwrap_or_default();
    if request.updater_status.len() > UpdaterStatus::MAX_BYTES || rotation.id.len() > 64 {
        return Err(Status::invalid_argument("updater_status or rotation: longer than is allowed"));
    }
    // A status that cannot be read is the updater's fault, and no reason to lose the host.
    let updater = Some(&request.updater_status).filter(|text| !text.is_empty());
    let updater = updater.and_then(|text| serde_json::from_str(text).ok()).map(Box::new);
    let platform = match request.os.is_empty() && request.arch.is_empty() {
        true => None,
        false => {
            let platform = Platform::new(&request.os, &request.os_version, &request.arch);
            Some(Box::new(platform.map_err(|error| invalid("platform", &error))?))
        }
    };
    Ok(Heartbeat {
        identity_expires,
        hostname: hostname(&request.hostname)?.into(),
        report: Report {
            version: request.version.parse().map_err(|error| invalid("version", &error))?,
            edition: StoredWord::Known(edition.parse().map_err(|error| invalid("edition", &error))?),
            node_labels: labels("node_labels", request.node_labels)?,
            instance_labels: labels("instance_labels", request.instance_labels)?,
            upgrader: StoredWord::Known(upgrader.parse().map_err(|error| invalid("upgrader", &error))?),
            updater,
            session: Session {
                id: request.session.parse().map_err(|error| invalid("session", &error))?,
                started_at: started_at.ok_or_else(|| invalid("started_at", &"is missing"))?,
            },
            rotation: RotationMark {
                phase: rotation.phase_text().chars().take(32).collect::<String>().into(),
                id: rotation.id.into(),
            },
            hint_acknowledged: request.hint_acknowledged,
            platform,
        },
    })
}

/// What strangers sent, cut to a readable length.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
