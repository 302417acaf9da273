//! `refitctl nodes`: creates join tokens, and lists and removes hosts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use refit_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use refit_proto::cluster::v1::{GetStatusRequest, Server};
use refit_proto::codes_of;
use refit_proto::nodes::v1::node_service_client::NodeServiceClient;
use refit_proto::nodes::v1::{self as wire, CreateTokenRequest, DeleteNodeRequest, ListNodesRequest};
use refit_types::{AgentRole, HostId, Labels, UpdaterStatus};
use serde::Serialize;
use serde_json::Value;

use super::{Global, duration};
use crate::exit::Failure;
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a token by which hosts join, and show the line to run on them
    Add(Add),
    /// Show the fleet
    Ls(Ls),
    /// Remove a host from the fleet; it can join anew
    #[command(after_help = "Example:\n  refitctl nodes rm 6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55")]
    Rm {
        /// The host's UUID
        #[arg(value_name = "UUID")]
        host: HostId,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  refitctl nodes add --roles=node,kube --ttl=10m --format=json")]
pub(crate) struct Add {
    /// What agents may be that join with it: node, kube, app, db, discovery
    #[arg(long, value_name = "ROLE,…", value_delimiter = ',', default_value = "node")]
    roles: Vec<AgentRole>,
    /// How long hosts can join with it, like 10m or 2h; 30d at most
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    ttl: Duration,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refitctl nodes ls\n  refitctl nodes ls --labels environment=staging --search 15.1"
)]
pub(crate) struct Ls {
    /// Only hosts that have this in their name, UUID, version, edition or labels
    #[arg(long, value_name = "TEXT", default_value = "")]
    search: String,
    /// Only hosts that have all of these labels
    #[arg(long, value_name = "NAME=VALUE,…", default_value = "")]
    labels: Labels,
}

#[derive(Serialize)]
struct Token {
    token: String,
    roles: Vec<String>,
    expires: Option<Timestamp>,
    ca_pin: String,
    command: String,
}

#[derive(Serialize)]
struct Node {
    host_id: String,
    hostname: String,
    roles: Vec<String>,
    version: String,
    edition: String,
    os: String,
    os_version: String,
    arch: String,
    instance_labels: BTreeMap<String, String>,
    node_labels: BTreeMap<String, String>,
    upgrader: String,
    updater: Value,
    connected: bool,
    duplicate: bool,
    rotation_phase: String,
    first_seen: Option<Timestamp>,
    last_seen: Option<Timestamp>,
}

impl Command {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        match self {
            Self::Add(add) => add.run(global).await,
            Self::Ls(ls) => ls.run(global).await,
            Self::Rm { host } => {
                let mut client = NodeServiceClient::new(global.target.connect().await?);
                client.delete_node(DeleteNodeRequest { host_id: host.to_string() }).await?;
                let answer = serde_json::json!({ "host_id": host });
                output::done(global.format, &answer, format!("The host {host} has been removed."))
            }
        }
    }
}

impl Add {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        let channel = global.target.connect().await?;
        let servers = ClusterServiceClient::new(channel.clone())
            .get_status(GetStatusRequest {})
            .await?
            .into_inner()
            .servers;
        let roles: Vec<String> = self.roles.iter().map(ToString::to_string).collect();
        let request = CreateTokenRequest {
            role_codes: codes_of::<refit_proto::v1::AgentRole>(&roles),
            roles,
            ttl: self.ttl.try_into().ok(),
        };
        let made = NodeServiceClient::new(channel).create_token(request).await?.into_inner();
        let proxy = servers.iter().find(|server| server.answering).map(reachable);
        let proxy = proxy.map_or_else(|| global.target.address(), Ok)?;
        let roles = made.role_texts();
        let command = format!(
            "refit agent start --proxy {proxy} --token {} --ca-pin {} --roles {}",
            made.token,
            made.ca_pin,
            roles.join(",")
        );
        let answer = Token {
            token: made.token,
            roles,
            expires: super::timestamp(made.expires),
            ca_pin: made.ca_pin,
            command,
        };
        output::show(global.format, &answer, || {
            let until = answer.expires.map(|at| output::moment(at, Timestamp::now())).unwrap_or_default();
            format!(
                "The token {} lets hosts join as {}, until {until}.\nRun this on the new host:\n\n  {}",
                answer.token,
                answer.roles.join(", "),
                answer.command
            )
        })
    }
}

/// The address for other hosts: the server's name if it listens on all addresses.
fn reachable(server: &Server) -> String {
    match server.address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("{}:{}", server.hostname, address.port()),
        _ => server.address.clone(),
    }
}

impl Ls {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = NodeServiceClient::new(global.target.connect().await?);
        let labels = self.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels: std::collections::HashMap<String, String> = labels.collect();
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let (search, labels) = (self.search.clone(), labels.clone());
            let request = ListNodesRequest { page_size: 1000, page_token, search, labels };
            let page = client.list_nodes(request).await?.into_inner();
            all.extend(page.nodes.into_iter().map(Node::from));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let everyone = self.search.is_empty() && self.labels.is_empty();
        output::show(global.format, &all, || match (all.is_empty(), everyone) {
            (false, _) => text(&all, Timestamp::now()),
            (true, true) => "There is no host. Add one with `refitctl nodes add`.".into(),
            (true, false) => "No host is like that.".into(),
        })
    }
}

fn text(nodes: &[Node], now: Timestamp) -> String {
    let rows = nodes.iter().map(|node| {
        let labels = node.instance_labels.iter().chain(&node.node_labels);
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        let seen = node.last_seen.map(|at| output::in_words(at, now)).unwrap_or_default();
        let mark = if node.connected { "" } else { " (away)" };
        let twice = if node.duplicate { " DUPLICATE UUID" } else { "" };
        [
            node.hostname.clone(),
            node.host_id.clone(),
            dash(&node.version),
            dash(&node.edition),
            dash(&labels.join(",")),
            updater_in_words(node),
            format!("{seen}{mark}{twice}"),
        ]
    });
    output::table(["HOST", "UUID", "VERSION", "EDITION", "LABELS", "UPDATER", "LAST SEEN"], rows)
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.into() }
}

fn updater_in_words(node: &Node) -> String {
    let Ok(status) = serde_json::from_value::<UpdaterStatus>(node.updater.clone()) else { return "-".into() };
    if let Some(failure) = status.version_failure() {
        return format!("failed {} at {}", failure.version, failure.step);
    }
    if let Some(obstacle) = status.current_obstacle() {
        return format!("tries again: {}", obstacle.step);
    }
    match &status {
        UpdaterStatus { held: Some(reason), .. } => format!("held: {reason}"),
        UpdaterStatus { pinned_version: Some(version), .. } => format!("pinned to {version}"),
        UpdaterStatus { agent_updates_enabled: false, .. } => "disabled".into(),
        _ => "enabled".into(),
    }
}

impl From<wire::Node> for Node {
    fn from(node: wire::Node) -> Self {
        Self {
            roles: node.role_texts(),
            edition: node.edition_text(),
            upgrader: node.upgrader_text(),
            rotation_phase: node.rotation_phase_text(),
            host_id: node.host_id,
            hostname: node.hostname,
            version: node.version,
            os: node.os,
            os_version: node.os_version,
            arch: node.arch,
            instance_labels: node.instance_labels.into_iter().collect(),
            node_labels: node.node_labels.into_iter().collect(),
            updater: serde_json::from_str(&node.updater_status).unwrap_or_default(),
            connected: node.connected,
            duplicate: node.duplicate,
            first_seen: super::timestamp(node.first_seen),
            last_seen: super::timestamp(node.last_seen),
        }
    }
}
