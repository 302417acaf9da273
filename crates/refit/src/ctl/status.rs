use std::collections::BTreeMap;

use jiff::Timestamp;
use refit_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use refit_proto::cluster::v1::{self as wire, GetStatusRequest};
use serde::Serialize;

use super::Global;
use crate::exit::Failure;
use crate::output::{self, counted, moment};

#[derive(Serialize)]
struct Status {
    cluster: String,
    ca_pin: String,
    ca_expires: Option<Timestamp>,
    store: String,
    store_revision: u64,
    servers: Vec<Server>,
    migrations: Migrations,
    resources: BTreeMap<String, u64>,
    caller: Caller,
    hosts: Hosts,
    rotation_phase: String,
}

#[derive(Serialize)]
struct Hosts {
    total: u64,
    connected: u64,
}

#[derive(Serialize)]
struct Server {
    id: String,
    hostname: String,
    version: String,
    address: String,
    started_at: Option<Timestamp>,
    answering: bool,
}

#[derive(Serialize)]
struct Migrations {
    applied: u32,
    failed: u32,
    outstanding: u32,
}

#[derive(Serialize)]
struct Caller {
    name: String,
    roles: Vec<String>,
    expires: Option<Timestamp>,
}

pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    let mut client = ClusterServiceClient::new(global.target.connect().await?);
    let status: Status = client.get_status(GetStatusRequest {}).await?.into_inner().into();
    output::show(global.format, &status, || text(&status, Timestamp::now()))
}

fn text(status: &Status, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map_or_else(|| "-".into(), |at| moment(at, now));
    let migrations = &status.migrations;
    let mut stand = vec![format!("{} applied", migrations.applied)];
    if migrations.failed > 0 {
        stand.push(format!("{} FAILED (see `refitctl migrations ls`)", migrations.failed));
    }
    if migrations.outstanding > 0 {
        stand.push(format!("{} outstanding", migrations.outstanding));
    }
    let resources: Vec<String> = status.resources.iter().map(|(kind, count)| counted(*count, kind)).collect();
    let caller = &status.caller;
    let facts = output::facts([
        ("Cluster", status.cluster.clone()),
        ("CA pin", status.ca_pin.clone()),
        ("CA expires", when(status.ca_expires)),
        ("CA rotation", status.rotation_phase.clone()),
        ("Store", format!("{}, revision {}", status.store, status.store_revision)),
        ("Migrations", stand.join(", ")),
        ("Hosts", format!("{}, {} connected", status.hosts.total, status.hosts.connected)),
        ("Resources", resources.join(", ")),
        ("You", format!("{} ({}), until {}", caller.name, caller.roles.join(", "), when(caller.expires))),
    ]);
    let rows = status.servers.iter().map(|server| {
        let mark = if server.answering { " (answering)" } else { "" };
        let hostname = format!("{}{mark}", server.hostname);
        [hostname, server.address.clone(), server.version.clone(), when(server.started_at), server.id.clone()]
    });
    let servers = output::table(["SERVER", "ADDRESS", "VERSION", "STARTED", "ID"], rows);
    format!("{facts}\n\n{servers}")
}

impl From<wire::Status> for Status {
    fn from(status: wire::Status) -> Self {
        let servers = status.servers.into_iter().map(|server| Server {
            id: server.id,
            hostname: server.hostname,
            version: server.version,
            address: server.address,
            started_at: super::timestamp(server.started_at),
            answering: server.answering,
        });
        let migrations = status.migrations.unwrap_or_default();
        let caller = status.caller.unwrap_or_default();
        let hosts = status.hosts.unwrap_or_default();
        Self {
            hosts: Hosts { total: hosts.total, connected: hosts.connected },
            rotation_phase: status.rotation_phase,
            cluster: status.cluster,
            ca_pin: status.ca_pin,
            ca_expires: super::timestamp(status.ca_expires),
            store: status.store,
            store_revision: status.store_revision,
            servers: servers.collect(),
            migrations: Migrations {
                applied: migrations.applied,
                failed: migrations.failed,
                outstanding: migrations.outstanding,
            },
            resources: status.resources.into_iter().map(|count| (count.kind, count.count)).collect(),
            caller: Caller {
                name: caller.name,
                roles: caller.roles,
                expires: super::timestamp(caller.expires),
            },
        }
    }
}
