//! The loop of a running agent: join, connect, report, follow rotations, renew, and reconnect. [`crate::run`]
//! starts it.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_identity::{Identities, Identity, renew_after};
use refit_proto::agent::v1::{HeartbeatReply, Rotation};
use refit_types::{AgentRole, HostId};
use tokio::sync::watch;

use crate::heartbeat_stream::{HeartbeatSource, HeartbeatStream};
use crate::run::host_error;
use crate::updater_wake::UpdaterWake;
use crate::{
    AgentConfig, Contact, End, ExecPath, LabelSource, Notify, PidFile, Readiness, RpcError, RunError,
    SignalRequest, Signals, TrustFile, contact, join, next_try, reexec, rotation_client,
};

/// A running agent.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    pub(crate) host: HostId,
    pub(crate) identities: Identities,
    pub(crate) heartbeat_source: HeartbeatSource,
    pub(crate) readiness: watch::Sender<Readiness>,
    pub(crate) notify: Notify,
    pub(crate) trust: TrustFile,
    pub(crate) signals: Signals,
    pub(crate) started: ExecPath,
    pub(crate) lock: PidFile,
    pub(crate) labels: Vec<LabelSource>,
    pub(crate) updater_wake: UpdaterWake,
    pub(crate) server: usize,
    pub(crate) failures: u32,
    /// Since when there is no connection: the start, or the loss of the last one.
    pub(crate) disconnected_since: Instant,
    pub(crate) reason: String,
    pub(crate) was_connected: bool,
}

/// Why a connection ended.
enum ConnectionEnd {
    /// It broke, or never came about.
    Lost(RpcError),
    /// Its identity was replaced: connect anew with the next one.
    Renewed,
    /// A signal asked for something.
    Signal(SignalRequest),
}

impl Agent {
    /// Joins where needed, then stays connected until it is asked to stop, or cannot go on.
    pub(crate) async fn run(&mut self) -> Result<End, RunError> {
        if let Some(end) = self.join().await? {
            return Ok(end);
        }
        self.notify.ready("joined");
        loop {
            match self.connect().await? {
                ConnectionEnd::Renewed => self.failures = 0,
                ConnectionEnd::Signal(SignalRequest::Drain) => return Ok(End::Drained),
                ConnectionEnd::Signal(SignalRequest::Reload) => self.reload().await,
                ConnectionEnd::Lost(error) => {
                    self.record_loss(&error);
                    if let Some(end) = self.back_off().await {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// Gets an identity for every role that has none.
    async fn join(&mut self) -> Result<Option<End>, RunError> {
        loop {
            let missing =
                join::missing_roles(&self.identities, &self.config.roles).await.map_err(host_error)?;
            if missing.is_empty() {
                return Ok(None);
            }
            if self.config.token.is_none() {
                return Err(RunError::NoToken);
            }
            let known = self.any_identity().await?;
            let proxy = &self.config.proxies[self.server];
            let hostname = self.heartbeat_source.hostname.clone();
            let joined = join::join(
                &self.config,
                proxy,
                self.host,
                &hostname,
                &missing,
                known.as_ref(),
                &self.identities,
            );
            match joined.await {
                Ok(()) => self.disconnected_since = Instant::now(),
                Err(error) if error.is_final() => return Err(RunError::JoinRefused(error)),
                Err(error) => {
                    self.record_loss(&error);
                    if let Some(end) = self.back_off().await {
                        return Ok(Some(end));
                    }
                }
            }
        }
    }

    /// An identity of some role, if the host has one.
    async fn any_identity(&self) -> Result<Option<Identity>, RunError> {
        for role in &self.config.roles {
            if let Some(identity) = self.identities.load(*role).await.map_err(host_error)?.active() {
                return Ok(Some(identity.clone()));
            }
        }
        Ok(None)
    }

    /// How far the host has followed a rotation, with all of its roles.
    async fn reported_rotation(&self) -> Result<Rotation, RunError> {
        let mut states = Vec::new();
        for role in &self.config.roles {
            states.push(self.identities.load(*role).await.map_err(host_error)?.state);
        }
        Ok(rotation_client::reported_rotation(&states))
    }

    /// The role whose identity opens the connection.
    fn first_role(&self) -> AgentRole {
        self.config.roles.first().copied().unwrap_or(AgentRole::Node)
    }

    /// One connection, from its beginning to its end.
    async fn connect(&mut self) -> Result<ConnectionEnd, RunError> {
        let role = self.first_role();
        let stored = self.identities.load(role).await.map_err(host_error)?;
        self.heartbeat_source.rotation = self.reported_rotation().await?;
        let proxy = self.config.proxies[self.server].clone();
        let mut refused = None;
        for (_, identity) in stored.candidates() {
            let started = tokio::select! {
                started = HeartbeatStream::start(&proxy, identity, &mut self.heartbeat_source) => started,
                request = self.signals.next() => return Ok(ConnectionEnd::Signal(request)),
            };
            match started {
                Ok((stream, first)) => {
                    self.record_connected(identity);
                    let end = self.exchange_heartbeats(stream, first, identity.clone()).await;
                    self.disconnected_since = Instant::now();
                    return end;
                }
                Err(error) if error.is_distrust() => refused = Some((identity.cluster().to_string(), error)),
                Err(error) => return Ok(ConnectionEnd::Lost(error)),
            }
        }
        match refused {
            Some((cluster, source)) if !self.was_connected => {
                Err(RunError::Foreign { cluster, store: self.identities.describe(), source })
            }
            Some((_, error)) => Ok(ConnectionEnd::Lost(error)),
            None => Err(RunError::NoToken),
        }
    }

    /// Reports over an open stream until it breaks, an identity is due, or a signal arrives.
    async fn exchange_heartbeats(
        &mut self,
        mut stream: HeartbeatStream,
        first: HeartbeatReply,
        identity: Identity,
    ) -> Result<ConnectionEnd, RunError> {
        let certificate = identity.certificate();
        let renew_at = renew_after(certificate.not_before(), certificate.not_after(), rand::random());
        let mut reply = first;
        let mut warned = false;
        loop {
            if reply.duplicate_host && !warned {
                warned = true;
                tracing::warn!(host = %self.host, "another agent reports with this host's UUID; give one of them a new data directory");
            }
            if reply
                .rotation
                .as_ref()
                .is_some_and(|rotation| !rotation.is_same(&self.heartbeat_source.rotation))
            {
                return Ok(self.follow_rotation(&stream).await);
            }
            if Timestamp::now() >= renew_at {
                return Ok(self.renew().await);
            }
            if reply.upgrade_due
                && self.wake_updater(reply.attempt)
                && let Err(error) = stream.send(&mut self.heartbeat_source).await
            {
                return Ok(ConnectionEnd::Lost(error));
            }
            reply = tokio::select! {
                reply = stream.next_reply(&mut self.heartbeat_source) => match reply {
                    Ok(reply) => reply,
                    Err(error) => return Ok(ConnectionEnd::Lost(error)),
                },
                request = self.signals.next() => return Ok(ConnectionEnd::Signal(request)),
            };
        }
    }

    /// Wakes the updater for that attempt; whether the next heartbeat has to acknowledge it.
    fn wake_updater(&mut self, attempt: u64) -> bool {
        match self.updater_wake.wake(attempt, Instant::now()) {
            Ok(true) if self.heartbeat_source.hint_acknowledged != attempt => {
                tracing::info!(attempt, "an upgrade is due: woke the updater");
                self.heartbeat_source.hint_acknowledged = attempt;
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::warn!(path = %self.updater_wake.path().display(), %error, "cannot wake the updater; it checks by itself every 10 minutes");
                false
            }
        }
    }

    /// Brings every role to the phase that the server is in, while the connection stays open.
    async fn follow_rotation(&mut self, stream: &HeartbeatStream) -> ConnectionEnd {
        let proxy = self.config.proxies[self.server].clone();
        let followed = async {
            let authorities = stream.authorities().await?;
            for role in &self.config.roles {
                rotation_client::follow(&self.identities, *role, &proxy, &authorities).await?;
            }
            Ok(authorities.phase)
        };
        match followed.await {
            Ok(phase) => {
                tracing::info!(%phase, "followed the rotation of the authorities");
                ConnectionEnd::Renewed
            }
            Err(error) => ConnectionEnd::Lost(error),
        }
    }

    async fn renew(&mut self) -> ConnectionEnd {
        let proxy = self.config.proxies[self.server].clone();
        for role in &self.config.roles {
            let renewed = async {
                let slot = self.identities.load(*role).await?.active_slot();
                rotation_client::renew(&self.identities, *role, &proxy, slot).await
            };
            if let Err(error) = renewed.await {
                return ConnectionEnd::Lost(error);
            }
        }
        ConnectionEnd::Renewed
    }

    fn record_connected(&mut self, identity: &Identity) {
        (self.failures, self.was_connected) = (0, true);
        if let Err(error) = self.trust.keep(identity.authorities()) {
            tracing::error!(%error, "cannot write the trust file for the updater");
        }
        let (cluster, expires, issuer) =
            (identity.cluster().to_string(), identity.expires(), identity.issuer());
        self.notify.status(&format!("connected to cluster {cluster}"));
        self.readiness.send_modify(|readiness| {
            (readiness.connected, readiness.reason) = (true, None);
            (readiness.cluster, readiness.identity_expires) = (Some(cluster), Some(expires));
            readiness.identity_issuer = issuer;
        });
    }

    fn record_loss(&mut self, error: &RpcError) {
        self.failures = self.failures.saturating_add(1);
        self.reason = error.to_string();
        tracing::warn!(%error, server = %self.config.proxies[self.server], "lost connection to the control plane");
        self.notify.status(&self.reason);
        let reason = self.reason.clone();
        self.readiness
            .send_modify(|readiness| (readiness.connected, readiness.reason) = (false, Some(reason)));
    }

    /// Waits before the next attempt, at another server if there are several. Returns the end when the
    /// control plane was unreachable for too long, or a signal asked for it.
    async fn back_off(&mut self) -> Option<End> {
        let next = next_try(self.failures, self.server, servers(&self.config), rand::random());
        self.server = next.server;
        let left = match contact(self.disconnected_since, Instant::now(), self.config.unreachable_exit) {
            Contact::Within { left } => left,
            Contact::Lost { .. } => return Some(End::Unreachable { reason: self.reason.clone() }),
        };
        let request = tokio::select! {
            () = tokio::time::sleep(next.delay.min(left).max(Duration::from_millis(1))) => return None,
            request = self.signals.next() => request,
        };
        match request {
            SignalRequest::Drain => Some(End::Drained),
            SignalRequest::Reload => {
                self.reload().await;
                None
            }
        }
    }

    /// Re-executes the binary at the path that the agent was started by; keeps running if that fails.
    async fn reload(&mut self) {
        self.notify.reloading();
        for labels in self.labels.drain(..) {
            labels.stop().await;
        }
        let Err(error) = reexec(&self.started, &self.lock);
        tracing::error!(%error, "re-execution failed; the agent keeps running its current version");
        self.notify.ready(&error.to_string());
        let instance =
            LabelSource::start(self.config.instance_labels.clone(), self.config.instance_commands.clone());
        let node = LabelSource::start(self.config.node_labels.clone(), self.config.node_commands.clone());
        (self.heartbeat_source.instance_labels, self.heartbeat_source.node_labels) =
            (instance.labels(), node.labels());
        self.labels = vec![instance, node];
    }
}

pub(crate) fn servers(config: &AgentConfig) -> NonZeroUsize {
    NonZeroUsize::new(config.proxies.len()).unwrap_or(NonZeroUsize::MIN)
}
