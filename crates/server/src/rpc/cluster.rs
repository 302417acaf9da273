//! The service that says how the cluster is: servers, hosts, migrations and resources in numbers.

use std::collections::BTreeSet;
use std::sync::Arc;

use refit_backend::SharedBackend;
use refit_identity::Principal;
use refit_migrations::{Registry, list_history};
use refit_proto::cluster::v1 as wire;
use refit_proto::cluster::v1::cluster_service_server::ClusterService;
use refit_proto::code_of;
use refit_proto::v1::RotationPhase;
use refit_resources::Stores;
use refit_types::{HostRecord, Kind};
use tonic::{Request, Response, Status};

use super::{resource_status, store_status, timestamp};
use crate::access::{Caller, caller};
use crate::authorities::Authorities;
use crate::fleet::{Fleet, FleetView};
use crate::server_registry::{ServerRecord, live_servers};

/// Tells how the cluster is.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) backend: SharedBackend,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) stores: Stores,
    pub(crate) known: Registry,
    pub(crate) server_id: String,
}

#[tonic::async_trait]
impl ClusterService for Cluster {
    async fn get_status(
        &self,
        request: Request<wire::GetStatusRequest>,
    ) -> Result<Response<wire::Status>, Status> {
        let caller = who(caller(&request)?);
        let revision = self.backend.read(&[]).await.map_err(store_status)?.revision;
        let live = live_servers(&self.backend).await.map_err(store_status)?;
        let hosts = self.hosts(&live).await.map_err(store_status)?;
        let mut servers: Vec<wire::Server> = live
            .into_iter()
            .map(|server| wire::Server {
                answering: server.id == self.server_id,
                id: server.id,
                hostname: server.hostname,
                version: server.version,
                address: server.address,
                started_at: Some(timestamp(server.started_at)),
            })
            .collect();
        servers.sort_by_key(|server| server.started_at.map(|at| at.seconds));
        let current = self.authorities.current();
        let authority = current.authority();
        Ok(Response::new(wire::Status {
            cluster: authority.cluster().to_string(),
            ca_pin: authority.pin().to_string(),
            ca_expires: Some(timestamp(authority.server_certificate().not_after())),
            store: self.backend.describe(),
            store_revision: revision.0,
            servers,
            migrations: Some(self.migrations().await?),
            resources: self.resource_counts().await?,
            caller: Some(caller),
            hosts: Some(hosts),
            rotation_phase_code: code_of::<RotationPhase>(&current.mark().phase),
            rotation_phase: current.mark().phase.into(),
        }))
    }
}

impl Cluster {
    async fn hosts(&self, live: &[ServerRecord]) -> refit_backend::Result<wire::Hosts> {
        let live: BTreeSet<String> = live.iter().map(|server| server.id.clone()).collect();
        let count = move |view: &FleetView| {
            let is_heard =
                |instance: &HostRecord| instance.server.as_deref().is_some_and(|id| live.contains(id));
            let connected = view.hosts.iter().filter(|(_, known)| is_heard(&known.value)).count();
            wire::Hosts { total: view.hosts.len() as u64, connected: connected as u64 }
        };
        self.fleet.scan_view(count).await
    }

    async fn migrations(&self) -> Result<wire::Migrations, Status> {
        let (records, _) = list_history(&self.backend, None, refit_backend::MAX_PAGE_ITEMS)
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let applied: BTreeSet<u32> = records.iter().filter(|r| r.success).map(|r| r.number).collect();
        let outstanding = self.known.iter().filter(|migration| !applied.contains(&migration.number)).count();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(wire::Migrations {
            applied: count(applied.len()),
            failed: count(records.len() - applied.len()),
            outstanding: count(outstanding),
        })
    }

    /// How many there are of each kind of which there can be several.
    async fn resource_counts(&self) -> Result<Vec<wire::ResourceCount>, Status> {
        let mut counts = Vec::new();
        for kind in Kind::ALL.into_iter().filter(|kind| kind.singleton().is_none()) {
            counts.push(wire::ResourceCount { kind: kind.name().into(), count: self.count(kind).await? });
        }
        Ok(counts)
    }

    async fn count(&self, kind: Kind) -> Result<u64, Status> {
        let store = self.stores.of(kind);
        let (mut count, mut after) = (0, None);
        loop {
            let page = store.list(after.as_deref(), refit_backend::MAX_PAGE_ITEMS).await;
            let page = page.map_err(resource_status)?;
            count += page.items.len() as u64;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(count),
            }
        }
    }
}

fn who(caller: &Caller) -> wire::Caller {
    let roles = match caller.principal() {
        Some(Principal::User { roles, .. }) => roles.iter().map(|role| role.to_string()).collect(),
        _ => Vec::new(),
    };
    let expires = caller.peer.expires().map(timestamp);
    wire::Caller { name: caller.name(), roles, expires }
}
