//! `refitctl status`: how the cluster is, in one page. Reads only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use refit_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use refit_proto::cluster::v1::{self as wire, GetStatusRequest};
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_proto::rollouts::v1::{self as rollouts, GetRolloutRequest, GroupState};
use serde::Serialize;
use tonic::Code;

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
    rollout: Option<Rollout>,
}

#[derive(Serialize)]
struct Rollout {
    enabled: bool,
    paused: bool,
    version: Option<String>,
    schedule: Option<String>,
    groups: usize,
    succeeded: usize,
    halted: Vec<String>,
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
    let channel = global.target.connect().await?;
    let mut client = ClusterServiceClient::new(channel.clone());
    let mut status: Status = client.get_status(GetStatusRequest {}).await?.into_inner().into();
    status.rollout = match RolloutServiceClient::new(channel).get_rollout(GetRolloutRequest {}).await {
        Ok(rollout) => Some(rollout.into_inner().into()),
        // A server from before there were rollouts.
        Err(answer) if answer.code() == Code::Unimplemented => None,
        Err(answer) => return Err(answer.into()),
    };
    output::show(global.format, &status, || text(&status, Timestamp::now()))
}

fn text(status: &Status, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map_or_else(|| "-".into(), |at| moment(at, now));
    let migrations = &status.migrations;
    let mut counts = vec![format!("{} applied", migrations.applied)];
    if migrations.failed > 0 {
        counts.push(format!("{} FAILED (see `refitctl migrations ls`)", migrations.failed));
    }
    if migrations.outstanding > 0 {
        counts.push(format!("{} outstanding", migrations.outstanding));
    }
    let resources: Vec<String> = status.resources.iter().map(|(kind, count)| counted(*count, kind)).collect();
    let caller = &status.caller;
    let mut facts = vec![
        ("Cluster", status.cluster.clone()),
        ("CA pin", status.ca_pin.clone()),
        ("CA expires", when(status.ca_expires)),
        ("CA rotation", status.rotation_phase.clone()),
        ("Store", format!("{}, revision {}", status.store, status.store_revision)),
        ("Migrations", counts.join(", ")),
        ("Hosts", format!("{}, {} connected", status.hosts.total, status.hosts.connected)),
        ("Resources", resources.join(", ")),
    ];
    facts.extend(status.rollout.as_ref().map(|rollout| ("Rollout", rollout.in_words())));
    let you = format!("{} ({}), until {}", caller.name, caller.roles.join(", "), when(caller.expires));
    facts.push(("You", you));
    let facts = output::facts(facts);
    let rows = status.servers.iter().map(|server| {
        let mark = if server.answering { " (answering)" } else { "" };
        let hostname = format!("{}{mark}", server.hostname);
        [hostname, server.address.clone(), server.version.clone(), when(server.started_at), server.id.clone()]
    });
    let servers = output::table(["SERVER", "ADDRESS", "VERSION", "STARTED", "ID"], rows);
    format!("{facts}\n\n{servers}")
}

impl Rollout {
    fn in_words(&self) -> String {
        let switch = match (self.enabled, self.paused) {
            (false, _) => "disabled",
            (true, true) => "paused",
            (true, false) => "enabled",
        };
        let (Some(version), Some(schedule)) = (&self.version, &self.schedule) else {
            return format!("{switch}, no version has been chosen");
        };
        let mut told = format!("{switch}, v{version} ({schedule})");
        if self.groups > 0 {
            told.push_str(&format!(
                ", {} of {} succeeded",
                self.succeeded,
                counted(self.groups as u64, "group")
            ));
        }
        if !self.halted.is_empty() {
            told.push_str(&format!(
                ", HALTED: {} (see `refitctl autoupdate status`)",
                self.halted.join(", ")
            ));
        }
        told
    }
}

impl From<rollouts::Rollout> for Rollout {
    fn from(rollout: rollouts::Rollout) -> Self {
        let in_state =
            |state: GroupState| rollout.groups.iter().filter(move |group| group.known_state() == state);
        let schedule = Some(rollout.schedule_text()).filter(|schedule| !schedule.is_empty());
        Self {
            enabled: rollout.enabled,
            paused: rollout.paused_at.is_some(),
            version: schedule.is_some().then(|| rollout.version.clone()),
            groups: rollout.groups.len(),
            succeeded: in_state(GroupState::Succeeded).count(),
            halted: in_state(GroupState::Halted).map(|group| group.name.clone()).collect(),
            schedule,
        }
    }
}

impl From<wire::Status> for Status {
    fn from(status: wire::Status) -> Self {
        let rotation_phase = status.rotation_phase_text();
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
            rollout: None,
            hosts: Hosts { total: hosts.total, connected: hosts.connected },
            rotation_phase,
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
