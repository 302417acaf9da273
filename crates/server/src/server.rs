//! Starts a server: opens the store, loads the authorities, and wires services and background tasks together.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::{AUTHORITY_KEY, Authority, TokenStore, VersionedAuthority};
use refit_backend::{Backoff, EtcdBackend, Key, SharedBackend, SqliteBackend};
use refit_identity::{CaPin, ClusterName, ServerId, write_private_file};
use refit_migrations::{RunError, Runner};
use refit_proto::agent::v1::agent_service_server::AgentServiceServer;
use refit_proto::agent::v1::join_service_server::JoinServiceServer;
use refit_proto::auth::v1::auth_service_server::AuthServiceServer;
use refit_proto::cluster::v1::cluster_service_server::ClusterServiceServer;
use refit_proto::events::v1::event_service_server::EventServiceServer;
use refit_proto::migrations::v1::migration_service_server::MigrationServiceServer;
use refit_proto::nodes::v1::node_service_server::NodeServiceServer;
use refit_proto::resources::v1::resource_service_server::ResourceServiceServer;
use refit_proto::rollouts::v1::rollout_service_server::RolloutServiceServer;
use refit_proto::rotation::v1::rotation_service_server::RotationServiceServer;
use refit_resources::Stores;
use refit_types::DataDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;

use crate::artifacts::{Artifacts, Published};
use crate::authorities::Authorities;
use crate::config::Store;
use crate::dispatch::Dispatch;
use crate::events::{Bounds, Events};
use crate::find::Find;
use crate::fleet::Fleet;
use crate::health::Health;
use crate::identity::{OwnIdentities, server_names};
use crate::limiter::{Allowance, Limiter};
use crate::listener::Listener;
use crate::metrics::Metrics;
use crate::rollout::Rollouts;
use crate::server_registry::{ServerRecord, stay_listed};
use crate::web::{Sessions, Web};
use crate::{Config, Release, StartError, diag, fleet, rotation, rpc, web};

/// Requests carry documents and certificate requests; nothing legitimate is larger.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// How often expired tokens are removed.
const SWEEP_TOKENS_EVERY: Duration = Duration::from_secs(3600);

/// How long another server may take to release the file: one that is stopping still finishes its writes.
const UNLOCKED_WITHIN: Duration = Duration::from_secs(3);

/// A running control plane.
#[derive(Debug)]
pub struct Server {
    /// Where the TLS port is.
    pub address: SocketAddr,
    /// Where health and metrics are.
    pub diag_address: SocketAddr,
    /// The cluster that it serves.
    pub cluster: ClusterName,
    /// How others know that it is this cluster.
    pub ca_pin: CaPin,
    /// The store, without credentials.
    pub store: String,
    stop: watch::Sender<bool>,
    health: Arc<Health>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Starts one with what `release` knows of the store. It serves when this returns; migrations go on
    /// in the background.
    pub async fn start(config: Config, release: Release) -> Result<Self, StartError> {
        let now: fn() -> Timestamp = Timestamp::now;
        prepare_data_dir(&config.data_dir)?;
        let backend = open(&config.store).await?;
        let hostname = gethostname::gethostname().to_string_lossy().to_ascii_lowercase();
        let stored = authority(&backend, &config, &hostname, now).await?;
        let authorities = Authorities::new(backend.clone(), stored)?;

        let socket = listen(config.listen, "--listen").await?;
        let diag_socket = listen(config.diag_listen, "--diag-listen").await?;
        let (address, diag_address) =
            (local(&socket, config.listen), local(&diag_socket, config.diag_listen));
        if !diag_address.ip().is_loopback() {
            tracing::warn!(%diag_address, "health and metrics are open to other hosts, and ask nobody who they are");
        }

        let id = uuid::Uuid::new_v4().to_string();
        let names = server_names(&hostname, address, &config.public_names);
        let server_id: ServerId = id.parse().map_err(refit_identity::Error::from)?;
        let own =
            OwnIdentities::prepare(authorities.clone(), server_id, names, config.data_dir.clone(), now)?;
        let endpoint = format!("{}\n", reachable(address));
        write_private_file(&config.data_dir.endpoint(), endpoint.as_bytes())?;

        let (stop, stopped) = watch::channel(false);
        let store = backend.describe();
        let metrics = Metrics::new(&release.version.to_string(), &store);
        let health = Arc::new(Health::default());
        health.store_answered();
        let observe = {
            let metrics = metrics.clone();
            Arc::new(move |number, outcome| metrics.migration(number, outcome))
        };
        let known = release.migrations.clone();
        let runner = Arc::new(Runner::new(
            backend.clone(),
            release.migrations,
            id.clone(),
            now,
            observe,
            stopped.clone(),
        ));
        let stores = Stores::open(&backend, release.stores)?;

        let mut tls = refit_authority::server_config(own.shown.clone())?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let events = Arc::new(Events::new(backend.clone(), now));
        let server: Arc<str> = id.as_str().into();
        let (fleet, owner) = Fleet::new(fleet::Dependencies {
            backend: backend.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            server: server.clone(),
            own_version: release.version.clone(),
            features: release.features,
            now,
        });
        let features = release.features;
        let rollouts = Rollouts::new(backend.clone(), fleet.clone(), events.clone(), server, features, now);
        let tokens = Arc::new(TokenStore::new(backend.clone(), &config.static_tokens));
        let sessions = Arc::new(Sessions::new(backend.clone(), now));
        let published = Published::new(config.data_dir.artifacts(), fleet.clone(), release.edition);
        let web = Web::new(web::Dependencies {
            backend: backend.clone(),
            fleet: fleet.clone(),
            rollouts: rollouts.clone(),
            published: published.clone(),
            rollout_rpc: rpc::RolloutRpc { rollouts: rollouts.clone() },
            resources: rpc::Resources::new(
                stores.clone(),
                events.clone(),
                rollouts.clone(),
                published.clone(),
            ),
            stop: stopped.clone(),
            sessions: sessions.clone(),
            events: events.clone(),
            authorities: authorities.clone(),
            now,
        });
        let parts = Dependencies {
            sessions,
            backend: backend.clone(),
            events: events.clone(),
            authorities: authorities.clone(),
            fleet: fleet.clone(),
            rollouts: rollouts.clone(),
            tokens: tokens.clone(),
            stores: stores.clone(),
            published,
            runner: runner.clone(),
            known,
            server_id: id.clone(),
            now,
            stop: stopped.clone(),
        };
        let grpc = parts.services();
        let artifacts = Artifacts::new(config.data_dir.artifacts(), metrics.clone());
        let dispatch = Arc::new(Dispatch {
            find: Find::new(fleet.clone(), release.edition, config.find_requests_per_second),
            grpc: grpc.prepare().into_axum_router(),
            stores,
            artifacts,
            web: web.clone(),
            authorities: authorities.clone(),
            metrics: metrics.clone(),
            now,
        });
        let listener = Listener { socket, tls: TlsAcceptor::from(Arc::new(tls)), dispatch };
        let record = ServerRecord {
            id,
            hostname,
            version: release.version.to_string(),
            address: address.to_string(),
            started_at: now(),
            level: release.features.level,
        };

        let mut tasks = JoinSet::new();
        tasks.spawn(listener.serve(stopped.clone()));
        tasks.spawn(own.keep_fresh(stopped.clone()));
        tasks.spawn(authorities.clone().follow(stopped.clone()));
        let (runtime, owner_stopped) = (tokio::runtime::Handle::current(), stopped.clone());
        tasks.spawn_blocking(move || runtime.block_on(owner.run(owner_stopped)));
        tasks.spawn(rollouts.clone().expire(stopped.clone()));
        tasks.spawn(rollouts.poll(stopped.clone()));
        tasks.spawn(rotation::drive(
            backend.clone(),
            fleet.clone(),
            authorities.clone(),
            events.clone(),
            now,
            stopped.clone(),
        ));
        tasks.spawn(events.prune(Bounds::default(), stopped.clone()));
        tasks.spawn(web.keep());
        tasks.spawn(sweep_tokens(tokens, now, stopped.clone()));
        tasks.spawn(stay_listed(backend.clone(), record, stopped.clone()));
        tasks.spawn({
            let runner = runner.clone();
            async move { runner.follow_history().await }
        });
        tasks.spawn(migrate(runner, stopped.clone()));
        let probe = Key::new(AUTHORITY_KEY)?;
        tasks.spawn({
            let (health, stopped) = (health.clone(), stopped.clone());
            async move { health.watch_store(backend, probe, stopped).await }
        });
        tasks.spawn(serve_diag(diag_socket, diag::router(health.clone(), fleet, metrics), stopped));
        Ok(Self {
            address,
            diag_address,
            cluster: authorities.current().authority().cluster().clone(),
            ca_pin: authorities.current().authority().pin(),
            store,
            stop,
            health,
            tasks,
        })
    }

    /// The address at which a client on this host reaches it.
    pub fn local_address(&self) -> SocketAddr {
        reachable(self.address)
    }

    /// Returns when a task of the server has ended unexpectedly, which only a bug can cause.
    pub async fn failed(&mut self) {
        match self.tasks.join_next().await {
            Some(Err(error)) => tracing::error!(%error, "a task of the server failed"),
            _ => tracing::error!("a task of the server ended unexpectedly"),
        }
    }

    /// Stops accepting work, drains what is in progress, and releases its leases in the store.
    pub async fn shut_down(mut self) {
        self.health.drain();
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Creates the data directory and its subdirectories, for this user only.
fn prepare_data_dir(data_dir: &DataDir) -> Result<(), StartError> {
    let root = data_dir.root();
    let failed = |source| StartError::DataDir { path: root.into(), source };
    if std::fs::metadata(root).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        tracing::warn!(path = %root.display(), "the data directory is open to other users of this host; chmod 700 it");
    }
    let identity = data_dir.admin_identity();
    let admin = identity.parent().unwrap_or(root);
    let create = |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    create(admin).and_then(|()| create(&data_dir.artifacts())).map_err(failed)
}

async fn open(store: &Store) -> Result<SharedBackend, StartError> {
    Ok(match store {
        Store::Sqlite(path) => Arc::new(open_file(path).await?),
        Store::Etcd(address) => Arc::new(EtcdBackend::connect(address).await?),
    })
}

/// Opens the file, and waits if the server that had it before is about to release it.
async fn open_file(path: &Path) -> refit_backend::Result<SqliteBackend> {
    let mut backoff = Backoff::of(UNLOCKED_WITHIN);
    loop {
        match SqliteBackend::open(path) {
            Err(refit_backend::Error::Locked(_)) if backoff.pause().await => {}
            other => return other,
        }
    }
}

async fn authority(
    backend: &SharedBackend,
    config: &Config,
    hostname: &str,
    now: fn() -> Timestamp,
) -> Result<VersionedAuthority, StartError> {
    let fallback = || "refit".parse().map_err(refit_identity::Error::from);
    let name = match &config.cluster_name {
        Some(name) => name.clone(),
        None => hostname.parse().or_else(|_| fallback())?,
    };
    let authority = Authority::load_or_create(backend.as_ref(), name, now()).await?;
    match &config.cluster_name {
        Some(configured) if configured != authority.cluster() => {
            return Err(StartError::OtherCluster {
                stored: authority.cluster().to_string(),
                configured: configured.to_string(),
            });
        }
        _ => {}
    }
    let key = Key::new(AUTHORITY_KEY)?;
    Authority::load(backend.as_ref()).await?.ok_or_else(|| refit_backend::Error::NotFound { key }.into())
}

/// What the gRPC services depend on.
struct Dependencies {
    sessions: Arc<Sessions>,
    backend: SharedBackend,
    events: Arc<Events>,
    authorities: Arc<Authorities>,
    fleet: Arc<Fleet>,
    rollouts: Arc<Rollouts>,
    tokens: Arc<TokenStore>,
    stores: Stores,
    published: Published,
    runner: Arc<Runner>,
    known: refit_migrations::Registry,
    server_id: String,
    now: fn() -> Timestamp,
    stop: watch::Receiver<bool>,
}

impl Dependencies {
    fn services(self) -> Routes {
        let (backend, authorities, fleet, now) = (self.backend, self.authorities, self.fleet, self.now);
        let events = self.events;
        let migrations =
            rpc::Migrations { backend: backend.clone(), runner: self.runner, events: events.clone() };
        let resources =
            rpc::Resources::new(self.stores.clone(), events.clone(), self.rollouts.clone(), self.published);
        let auth = rpc::Auth {
            backend: backend.clone(),
            authorities: authorities.clone(),
            events: events.clone(),
            sessions: self.sessions,
            now,
        };
        let cluster = rpc::Cluster {
            backend: backend.clone(),
            authorities: authorities.clone(),
            fleet: fleet.clone(),
            stores: self.stores,
            known: self.known,
            server_id: self.server_id,
        };
        let agents = rpc::Agents {
            fleet: fleet.clone(),
            rollouts: self.rollouts.clone(),
            tokens: self.tokens.clone(),
            authorities: authorities.clone(),
            limiter: Arc::new(Limiter::new(Allowance::REFUSED_JOINS)),
            now,
            stop: self.stop.clone(),
        };
        let nodes = rpc::Nodes {
            backend: backend.clone(),
            fleet: fleet.clone(),
            rollouts: self.rollouts.clone(),
            tokens: self.tokens,
            authorities: authorities.clone(),
            events: events.clone(),
            now,
        };
        let rollouts = rpc::RolloutRpc { rollouts: self.rollouts };
        let history =
            rpc::Events { history: events.clone(), authorities: authorities.clone(), now, stop: self.stop };
        let rotations = rpc::Rotations { backend, fleet, authorities, events, now };
        let most = MAX_REQUEST_BYTES;
        Routes::new(MigrationServiceServer::new(migrations).max_decoding_message_size(most))
            .add_service(ResourceServiceServer::new(resources).max_decoding_message_size(most))
            .add_service(AuthServiceServer::new(auth).max_decoding_message_size(most))
            .add_service(ClusterServiceServer::new(cluster).max_decoding_message_size(most))
            .add_service(JoinServiceServer::new(agents.clone()).max_decoding_message_size(most))
            .add_service(AgentServiceServer::new(agents).max_decoding_message_size(most))
            .add_service(NodeServiceServer::new(nodes).max_decoding_message_size(most))
            .add_service(RolloutServiceServer::new(rollouts).max_decoding_message_size(most))
            .add_service(RotationServiceServer::new(rotations).max_decoding_message_size(most))
            .add_service(EventServiceServer::new(history).max_decoding_message_size(most))
    }
}

/// Removes expired tokens, until the server stops.
async fn sweep_tokens(tokens: Arc<TokenStore>, now: fn() -> Timestamp, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(SWEEP_TOKENS_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        if let Err(error) = tokens.sweep(now()).await {
            tracing::warn!(%error, "could not remove expired tokens; retrying within the hour");
        }
    }
}

/// Applies outstanding migrations once. The server keeps serving, whatever the result.
async fn migrate(runner: Arc<Runner>, mut stop: watch::Receiver<bool>) {
    match runner.run().await {
        Ok(summary) if summary.applied.is_empty() => tracing::debug!("no migration was outstanding"),
        Ok(summary) => tracing::info!(applied = ?summary.applied, "applied the outstanding migrations"),
        Err(RunError::Stopped) => {}
        Err(error) => {
            tracing::error!(%error, "migrations failed; the server keeps running. Fix the cause, then run `refitctl migrations apply`")
        }
    }
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn serve_diag(socket: TcpListener, router: axum::Router, mut stop: watch::Receiver<bool>) {
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(socket, router).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "health and metrics are no longer served");
    }
}

async fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, flag, source })
}

fn local(socket: &TcpListener, asked: SocketAddr) -> SocketAddr {
    socket.local_addr().unwrap_or(asked)
}

fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}
