//! The API client of the demo: what it asks of the control plane that it started.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_convert::{blocked_by_in_words, moment};
use refit_proto::auth::v1::CreateWebLoginRequest;
use refit_proto::auth::v1::auth_service_client::AuthServiceClient;
use refit_proto::codes_of;
use refit_proto::nodes::v1::node_service_client::NodeServiceClient;
use refit_proto::nodes::v1::{CreateTokenRequest, CreateTokenResponse, ListNodesRequest};
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{Resource, UpsertResourceRequest};
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_proto::rollouts::v1::{GetRolloutRequest, ListGroupHostsRequest};
use refit_types::{UpdaterStatus, Version};
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::fleet::{GROUPS, Host};
use super::processes::Processes;
use super::snapshot::{Group, Seen, Snapshot};
use crate::ctl::connect::Target;
use crate::exit::Failure;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A server answers well within this, also on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// For all hosts, however many.
const TOKEN_LASTS: Duration = Duration::from_secs(3600);
const DASHBOARD_LASTS: Duration = Duration::from_secs(8 * 3600);
/// More than there are hosts.
const PAGE: i32 = 1000;

/// The control plane, as its administrator sees it.
pub(super) struct Cluster {
    channel: Channel,
    pub(super) address: String,
}

impl Cluster {
    /// The one of that data directory, as soon as it answers.
    pub(super) async fn reach(data: &Path, processes: &mut Processes) -> Result<Self, Failure> {
        let target = Target::of(data.to_owned());
        let end = Instant::now() + ANSWERS_WITHIN;
        loop {
            processes.all_live()?;
            match target.connect().await {
                Ok(channel) => return Ok(Self { channel, address: target.address()? }),
                Err(failure) if Instant::now() > end => return Err(failure),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// A token by which all hosts join.
    pub(super) async fn token(&self) -> Result<CreateTokenResponse, Failure> {
        let roles = vec!["node".to_owned()];
        let request = CreateTokenRequest {
            role_codes: codes_of::<refit_proto::v1::AgentRole>(&roles),
            roles,
            ttl: TOKEN_LASTS.try_into().ok(),
        };
        Ok(NodeServiceClient::new(self.channel.clone()).create_token(request).await?.into_inner())
    }

    /// The address of the dashboard, which signs whoever opens it in, once.
    pub(super) async fn dashboard(&self) -> Result<String, Failure> {
        let request = CreateWebLoginRequest { ttl: DASHBOARD_LASTS.try_into().ok() };
        let made = AuthServiceClient::new(self.channel.clone()).create_web_login(request).await?.into_inner();
        Ok(format!("https://{}/web/login/{}", self.address, made.code))
    }

    /// Stores a resource.
    pub(super) async fn store(&self, document: Value) -> Result<(), Failure> {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let resource = Some(Resource { json: document.to_string(), ..Default::default() });
        let request = UpsertResourceRequest { kind, resource, ..Default::default() };
        ResourceServiceClient::new(self.channel.clone()).upsert_resource(request).await?;
        Ok(())
    }

    /// Chooses the version that agents should run, through the groups.
    pub(super) async fn choose(&self, version: &Version) -> Result<(), Failure> {
        self.store(json!({
            "kind": "autoupdate_version",
            "metadata": { "name": "autoupdate-version" },
            "spec": { "agent_version": version.to_string(), "agent_version_schedule": "regular" },
        }))
        .await
    }

    /// How everything is, after that.
    pub(super) async fn snapshot(&self, hosts: &[Host], before: &Snapshot) -> Result<Snapshot, Failure> {
        let mut rollouts = RolloutServiceClient::new(self.channel.clone());
        let rollout = rollouts.get_rollout(GetRolloutRequest {}).await?.into_inner();
        let mut members = Vec::new();
        for group in GROUPS.into_iter().filter(|name| rollout.groups.iter().any(|group| group.name == *name))
        {
            let (group, page_size) = (group.to_owned(), PAGE);
            let request = ListGroupHostsRequest { group, page_size, ..ListGroupHostsRequest::default() };
            members.extend(rollouts.list_group_hosts(request).await?.into_inner().hosts);
        }
        // Hosts after groups: what a group ended with is then known of its hosts, too.
        let mut nodes = NodeServiceClient::new(self.channel.clone());
        let request = ListNodesRequest { page_size: PAGE, ..ListNodesRequest::default() };
        let nodes = nodes.list_nodes(request).await?.into_inner().nodes;
        let seen = |host: &Host| {
            let node = nodes.iter().find(|node| node.hostname == host.name);
            let member = members.iter().find(|member| member.hostname == host.name);
            let updater =
                node.and_then(|node| serde_json::from_str::<UpdaterStatus>(&node.updater_status).ok());
            Seen {
                name: host.name.clone(),
                group: host.group,
                version: node.and_then(|node| node.version.parse().ok()),
                is_connected: node.is_some_and(|node| node.connected),
                outcome: member.map(|member| member.outcome_text()).unwrap_or_default(),
                failure: updater.and_then(|updater| updater.version_failure().cloned()),
                active: host.active(),
                is_switching: host.is_switching(),
                has_tried: false,
            }
        };
        let hosts: Vec<Seen> = hosts.iter().map(seen).collect();
        let now = moment(rollout.now).unwrap_or_else(Timestamp::now);
        let groups = rollout.groups.into_iter().map(|group| Group {
            hosts: hosts.iter().filter(|host| host.group == group.name).count() as u32,
            state: group.state_text(),
            waiting: blocked_by_in_words(&group, now),
            name: group.name,
            upgraded: group.upgraded,
            in_flight: group.in_flight,
            failed: group.failed + group.timed_out,
            limit: group.limit,
        });
        let groups = groups.collect();
        Ok(Snapshot { version: rollout.version, groups, hosts }.remembering(before))
    }
}
