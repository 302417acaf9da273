//! Starts an agent: takes its lock, opens its files and sockets, and runs it to its end.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use refit_identity::{Identities, SqliteIdentities};
use refit_proto::agent::v1::Rotation;
use refit_types::{Edition, Version};
use tokio::sync::watch;
use uuid::Uuid;

use crate::connection_loop::{Agent, servers};
use crate::heartbeat_stream::HeartbeatSource;
use crate::platform::platform;
use crate::updater_wake::UpdaterWake;
use crate::{
    AgentConfig, ExecPath, LabelSource, Notify, PidFile, Readiness, ReadinessSocket, RpcError, Signals,
    TrustFile, first_server, read_or_create_host_uuid, watch_updater_status,
};

/// Why an agent ended without an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A signal asked it to stop.
    Drained,
    /// It had not reached the control plane for too long.
    Unreachable {
        /// Why the last attempt failed.
        reason: String,
    },
}

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file, socket or store on the host cannot be used.
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
    /// The cluster does not accept the identity.
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
        /// Why it was refused.
        source: RpcError,
    },
}

pub(crate) fn host_error(error: impl std::fmt::Display) -> RunError {
    RunError::Host(error.to_string())
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
        tracing::error!(path = %aside.path.display(), reason = aside.reason, "the agent's database was damaged: moved it aside and created a new one");
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
    let heartbeat_source = HeartbeatSource {
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
        platform: platform(),
        hint_acknowledged: 0,
    };
    let readiness = Readiness {
        version,
        started_at: heartbeat_source.started_at,
        pid: std::process::id(),
        session: heartbeat_source.session.clone(),
        connected: false,
        reason: Some("the agent has just started".into()),
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
        updater_wake: UpdaterWake::new(config.data_dir.updater_wake()),
        failures: 0,
        disconnected_since: Instant::now(),
        reason: "the agent has just started".into(),
        was_connected: false,
        config,
        host,
        identities,
        heartbeat_source,
        readiness,
        notify,
        trust,
        signals,
        started,
        lock,
    };
    let end = agent.run().await;
    agent.notify.stopping();
    for labels in agent.labels.drain(..) {
        labels.stop().await;
    }
    answering.abort();
    end
}

fn hostname() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}
