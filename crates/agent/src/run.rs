use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_identity::{Identities, Identity, SqliteIdentities, renew_after};
use refit_proto::agent::v1::{HeartbeatReply, Rotation};
use refit_types::{AgentRole, Edition, HostId, Version};
use tokio::sync::watch;
use uuid::Uuid;

use crate::heartbeat_stream::{HeartbeatSource, HeartbeatStream};
use crate::updater_wake::UpdaterWake;
use crate::{
    AgentConfig, Contact, ExecPath, LabelSource, Notify, PidFile, Readiness, ReadinessSocket, RpcError,
    SignalRequest, Signals, TrustFile, contact, first_server, join, next_try, read_or_create_host_uuid,
    reexec, rotation_client, watch_updater_status,
};

/// How an agent came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// It had not reached the control plane for too long.
    Unreachable {
        /// What was wrong the last time.
        reason: String,
    },
}

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Something on the host is not as it must be.
    #[error("{0}")]
    Host(String),
    /// The host has no identity and nothing to get one with.
    #[error(
        "this host has not joined a cluster: give it a token with --token (`refitctl nodes add` makes one) and the pin of the CA with --ca-pin"
    )]
    NoToken,
    /// The cluster does not let the host join.
    #[error("this host cannot join: {0}")]
    JoinRefused(RpcError),
    /// The cluster does not know the identity.
    #[error(
        "this host's identity is of cluster {cluster}, and the control plane does not accept it: {source}; if the host was \
         away while the authorities were replaced, or is to belong to another cluster, have it \
         removed with `refitctl nodes rm`, remove {store}, and join again with a token"
    )]
    Foreign {
        /// The cluster that signed the identity.
        cluster: String,
        /// Where the identity is.
        store: String,
        /// What was said.
        source: RpcError,
    },
}

fn host_error(error: impl std::fmt::Display) -> RunError {
    RunError::Host(error.to_string())
}

/// What an agent is made of while it runs.
struct Agent {
    config: AgentConfig,
    host: HostId,
    identities: Identities,
    portrait: HeartbeatSource,
    readiness: watch::Sender<Readiness>,
    notify: Notify,
    trust: TrustFile,
    signals: Signals,
    started: ExecPath,
    lock: PidFile,
    labels: Vec<LabelSource>,
    bell: UpdaterWake,
    server: usize,
    failures: u32,
    last_contact: Instant,
    reason: String,
    was_connected: bool,
}

/// Why a connection is given up.
enum ConnectionEnd {
    /// It broke, or never came about.
    Lost(RpcError),
    /// Its identity was replaced: connect anew with the next one.
    Renewed,
    /// Somebody asked for something.
    Asked(SignalRequest),
}

/// Runs an agent of that version until it is asked to stop, or cannot go on.
pub async fn run(config: AgentConfig, version: Version, edition: Edition) -> Result<End, RunError> {
    let started = ExecPath::this_process().map_err(host_error)?;
    let lock = PidFile::take(&config.data_dir).map_err(host_error)?;
    let signals = Signals::listen().map_err(host_error)?;
    let notify = Notify::from_env();
    let host = read_or_create_host_uuid(&config.data_dir.host_uuid(), Uuid::new_v4).map_err(host_error)?;
    let opened =
        SqliteIdentities::open(&config.data_dir.agent_store(), Timestamp::now()).map_err(host_error)?;
    if let Some(aside) = &opened.quarantined {
        tracing::error!(kept = %aside.path.display(), reason = aside.reason, "the agent's database cannot be used; it was kept aside, and a new one made");
    }
    let identities = Identities::new(Arc::new(opened.store));
    let decided = identities.decide_host_id(host).await.map_err(host_error)?;
    if decided != host {
        let file = config.data_dir.host_uuid();
        let (file, store) = (file.display(), identities.describe());
        return Err(RunError::Host(format!(
            "{file} says that this host is {host}, and {store} that it is {decided}: write {decided} into the \
             former, or remove the latter and join again"
        )));
    }

    let instance = LabelSource::start(config.instance_labels.clone(), config.instance_commands.clone());
    let node = LabelSource::start(config.node_labels.clone(), config.node_commands.clone());
    let portrait = HeartbeatSource {
        hostname: config.nodename.as_ref().map_or_else(hostname, |name| name.as_str().to_owned()),
        version: version.clone(),
        edition,
        roles: config.roles.iter().copied().collect(),
        session: Uuid::new_v4().to_string(),
        started_at: Timestamp::now(),
        instance_labels: instance.labels(),
        node_labels: node.labels(),
        updater: watch_updater_status(config.data_dir.updater_status()),
        rotation: Rotation::default(),
        hint_acknowledged: 0,
    };
    let readiness = Readiness {
        version,
        started_at: portrait.started_at,
        pid: std::process::id(),
        session: portrait.session.clone(),
        connected: false,
        reason: Some("it has just started".into()),
        host_id: Some(host),
        cluster: None,
        identity_expires: None,
        identity_issuer: None,
    };
    let socket = ReadinessSocket::bind(&config.data_dir.agent_socket()).map_err(host_error)?;
    let (readiness, shown) = watch::channel(readiness);
    let answering = tokio::spawn(socket.serve(shown));
    let servers = servers(&config);
    let trust = TrustFile::new(config.data_dir.trust());
    let mut agent = Agent {
        server: first_server(servers, rand::random()),
        labels: vec![instance, node],
        bell: UpdaterWake::new(config.data_dir.updater_bell()),
        failures: 0,
        last_contact: Instant::now(),
        reason: "it has just started".into(),
        was_connected: false,
        config,
        host,
        identities,
        portrait,
        readiness,
        notify,
        trust,
        signals,
        started,
        lock,
    };
    let end = agent.live().await;
    agent.notify.stopping();
    for labels in agent.labels.drain(..) {
        labels.stop().await;
    }
    answering.abort();
    end
}

impl Agent {
    async fn live(&mut self) -> Result<End, RunError> {
        if let Some(end) = self.join().await? {
            return Ok(end);
        }
        self.notify.ready("joined");
        loop {
            match self.connection().await? {
                ConnectionEnd::Renewed => self.failures = 0,
                ConnectionEnd::Asked(SignalRequest::Drain) => return Ok(End::Asked),
                ConnectionEnd::Asked(SignalRequest::Reload) => self.reload().await,
                ConnectionEnd::Lost(error) => {
                    self.lost(&error);
                    if let Some(end) = self.wait().await {
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
            let hostname = self.portrait.hostname.clone();
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
                Ok(()) => self.last_contact = Instant::now(),
                Err(error) if error.is_final() => return Err(RunError::JoinRefused(error)),
                Err(error) => {
                    self.lost(&error);
                    if let Some(end) = self.wait().await {
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

    /// Where the host stands in a rotation, with all of its roles.
    async fn standing(&self) -> Result<Rotation, RunError> {
        let mut states = Vec::new();
        for role in &self.config.roles {
            states.push(self.identities.load(*role).await.map_err(host_error)?.state);
        }
        Ok(rotation_client::standing(&states))
    }

    /// The role whose identity opens the connection.
    fn first_role(&self) -> AgentRole {
        self.config.roles.first().copied().unwrap_or(AgentRole::Node)
    }

    /// One connection, from its beginning to its end.
    async fn connection(&mut self) -> Result<ConnectionEnd, RunError> {
        let role = self.first_role();
        let stored = self.identities.load(role).await.map_err(host_error)?;
        self.portrait.rotation = self.standing().await?;
        let proxy = self.config.proxies[self.server].clone();
        let mut refused = None;
        for (_, identity) in stored.candidates() {
            let started = tokio::select! {
                started = HeartbeatStream::start(&proxy, identity, &mut self.portrait) => started,
                ask = self.signals.next() => return Ok(ConnectionEnd::Asked(ask)),
            };
            match started {
                Ok((pulse, first)) => {
                    self.connected(identity);
                    return self.beat(pulse, first, identity.clone()).await;
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

    async fn beat(
        &mut self,
        mut pulse: HeartbeatStream,
        first: HeartbeatReply,
        identity: Identity,
    ) -> Result<ConnectionEnd, RunError> {
        let certificate = identity.certificate();
        let renew_at = renew_after(certificate.not_before(), certificate.not_after(), rand::random());
        let mut reply = first;
        let mut warned = false;
        loop {
            self.last_contact = Instant::now();
            if reply.duplicate_host && !warned {
                warned = true;
                tracing::warn!(host = %self.host, "another agent reports with this host's UUID; give one of them a new data directory");
            }
            if reply.rotation.as_ref().is_some_and(|rotation| !rotation.is_same(&self.portrait.rotation)) {
                return Ok(self.follow_rotation(&pulse).await);
            }
            if Timestamp::now() >= renew_at {
                return Ok(self.renew().await);
            }
            if reply.upgrade_due
                && self.wake_updater(reply.attempt)
                && let Err(error) = pulse.beat(&mut self.portrait).await
            {
                return Ok(ConnectionEnd::Lost(error));
            }
            reply = tokio::select! {
                reply = pulse.next(&mut self.portrait) => match reply {
                    Ok(reply) => reply,
                    Err(error) => return Ok(ConnectionEnd::Lost(error)),
                },
                ask = self.signals.next() => return Ok(ConnectionEnd::Asked(ask)),
            };
        }
    }

    /// Wakes the updater for that attempt; whether the server has yet to be told so.
    fn wake_updater(&mut self, attempt: u64) -> bool {
        match self.bell.ring(attempt, Instant::now()) {
            Ok(true) if self.portrait.hint_acknowledged != attempt => {
                tracing::info!(attempt, "an upgrade is due: woke the updater");
                self.portrait.hint_acknowledged = attempt;
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::warn!(%error, "the updater could not be woken; it looks by itself every 10 minutes");
                false
            }
        }
    }

    /// Brings every role to where the server is, while the connection stays.
    async fn follow_rotation(&mut self, pulse: &HeartbeatStream) -> ConnectionEnd {
        let proxy = self.config.proxies[self.server].clone();
        let followed = async {
            let authorities = pulse.authorities().await?;
            for role in &self.config.roles {
                rotation_client::follow(&self.identities, *role, &proxy, &authorities).await?;
            }
            Ok(authorities.phase)
        };
        match followed.await {
            Ok(phase) => {
                tracing::info!(%phase, "follows the rotation of the authorities");
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

    fn connected(&mut self, identity: &Identity) {
        (self.failures, self.last_contact, self.was_connected) = (0, Instant::now(), true);
        if let Err(error) = self.trust.keep(identity.authorities()) {
            tracing::error!(%error, "the trust file for the updater could not be written");
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

    fn lost(&mut self, error: &RpcError) {
        self.failures = self.failures.saturating_add(1);
        self.reason = error.to_string();
        tracing::warn!(%error, server = %self.config.proxies[self.server], "the control plane is away");
        self.notify.status(&self.reason);
        let reason = self.reason.clone();
        self.readiness
            .send_modify(|readiness| (readiness.connected, readiness.reason) = (false, Some(reason)));
    }

    /// Waits before the next attempt, at another server if there are several. The end, if it is time for it.
    async fn wait(&mut self) -> Option<End> {
        let next = next_try(self.failures, self.server, servers(&self.config), rand::random());
        self.server = next.server;
        let left = match contact(self.last_contact, Instant::now(), self.config.unreachable_exit) {
            Contact::Within { left } => left,
            Contact::Lost { .. } => return Some(End::Unreachable { reason: self.reason.clone() }),
        };
        let ask = tokio::select! {
            () = tokio::time::sleep(next.delay.min(left).max(Duration::from_millis(1))) => return None,
            ask = self.signals.next() => ask,
        };
        match ask {
            SignalRequest::Drain => Some(End::Asked),
            SignalRequest::Reload => {
                self.reload().await;
                None
            }
        }
    }

    /// Becomes what is at the path that the agent was started by; goes on if that cannot be.
    async fn reload(&mut self) {
        self.notify.reloading();
        for labels in self.labels.drain(..) {
            labels.stop().await;
        }
        let Err(error) = reexec(&self.started, &self.lock);
        tracing::error!(%error, "the agent goes on as it is");
        self.notify.ready(&error.to_string());
        let instance =
            LabelSource::start(self.config.instance_labels.clone(), self.config.instance_commands.clone());
        let node = LabelSource::start(self.config.node_labels.clone(), self.config.node_commands.clone());
        (self.portrait.instance_labels, self.portrait.node_labels) = (instance.labels(), node.labels());
        self.labels = vec![instance, node];
    }
}

fn servers(config: &AgentConfig) -> NonZeroUsize {
    NonZeroUsize::new(config.proxies.len()).unwrap_or(NonZeroUsize::MIN)
}

fn hostname() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}
