//! A `refitctl` of 0.1: it asks and reads with the messages of that release only.

use jiff::Timestamp;
use refit_identity::{Role, SERVER_NAME, client_config};
use refit_released::v0_1::cluster::v1 as cluster_wire;
use refit_released::v0_1::cluster::v1::cluster_service_client::ClusterServiceClient;
use refit_released::v0_1::nodes::v1 as nodes;
use refit_released::v0_1::nodes::v1::node_service_client::NodeServiceClient;
use refit_released::v0_1::rollouts::v1 as rollouts;
use refit_released::v0_1::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_released::v0_1::rotation::v1 as rotation;
use refit_released::v0_1::rotation::v1::rotation_service_client::RotationServiceClient;
use refit_testbed::until_seen;
use rustls::pki_types::ServerName;
use tonic::Status;
use tonic::transport::Channel;

use crate::cluster::{HOUR, authority_in, user};
use crate::world::{SOON, World};

pub struct OldCtl {
    channel: Channel,
}

impl OldCtl {
    /// An administrator whom the present authority has signed.
    pub async fn of(world: &World) -> Self {
        let address = world.servers[0].local_address().to_string();
        // A server that is about to show the certificate of another phase is asked again.
        let dialled = until_seen("a connection", SOON, || dial(world, &address), Result::is_ok).await;
        Self { channel: dialled.unwrap() }
    }

    pub async fn rotation(&self) -> rotation::Rotation {
        let mut client = RotationServiceClient::new(self.channel.clone());
        client.get_rotation(rotation::GetRotationRequest {}).await.unwrap().into_inner()
    }

    pub async fn go_to(&self, phase: &str) -> Result<rotation::Rotation, Status> {
        let request = rotation::SetPhaseRequest { phase: phase.into(), force: false };
        let moved = RotationServiceClient::new(self.channel.clone()).set_phase(request).await?;
        Ok(moved.into_inner())
    }

    pub async fn nodes(&self) -> Vec<nodes::Node> {
        let all = nodes::ListNodesRequest { page_size: 1000, ..Default::default() };
        let mut client = NodeServiceClient::new(self.channel.clone());
        client.list_nodes(all).await.unwrap().into_inner().nodes
    }

    pub async fn token(&self, roles: &[&str]) -> nodes::CreateTokenResponse {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let ttl = Some(prost_types::Duration { seconds: 600, nanos: 0 });
        let mut client = NodeServiceClient::new(self.channel.clone());
        client.create_token(nodes::CreateTokenRequest { roles, ttl }).await.unwrap().into_inner()
    }

    pub async fn tokens(&self) -> Vec<nodes::Token> {
        let mut client = NodeServiceClient::new(self.channel.clone());
        client.list_tokens(nodes::ListTokensRequest::default()).await.unwrap().into_inner().tokens
    }

    pub async fn status(&self) -> cluster_wire::Status {
        let mut client = ClusterServiceClient::new(self.channel.clone());
        client.get_status(cluster_wire::GetStatusRequest {}).await.unwrap().into_inner()
    }

    pub async fn rollout(&self) -> rollouts::Rollout {
        let mut client = RolloutServiceClient::new(self.channel.clone());
        client.get_rollout(rollouts::GetRolloutRequest {}).await.unwrap().into_inner()
    }

    async fn group(&self, name: &str) -> rollouts::Group {
        let groups = self.rollout().await.groups;
        groups.into_iter().find(|group| group.name == name).unwrap_or_default()
    }

    /// Waits until the group stands there, moving or blocked with words that begin so.
    pub async fn until(&self, name: &str, state: &str, waiting: &str) -> rollouts::Group {
        let is_there = |group: &rollouts::Group| {
            group.state == state
                && group.waiting.starts_with(waiting)
                && group.waiting.is_empty() == waiting.is_empty()
        };
        let what = format!("{name} is {state}, {waiting:?}");
        until_seen(&what, SOON, || self.group(name), is_there).await
    }

    pub async fn hosts(&self, group: &str, outcome: &str) -> Result<Vec<rollouts::GroupHost>, Status> {
        let request = rollouts::ListGroupHostsRequest {
            group: group.into(),
            outcome: outcome.into(),
            page_size: 1000,
            page_token: String::new(),
        };
        let mut client = RolloutServiceClient::new(self.channel.clone());
        Ok(client.list_group_hosts(request).await?.into_inner().hosts)
    }

    pub async fn run(&self, group: &str) {
        let mut client = RolloutServiceClient::new(self.channel.clone());
        client.run_group(rollouts::RunGroupRequest { group: group.into() }).await.unwrap();
    }

    pub async fn pause(&self, group: &str) {
        let mut client = RolloutServiceClient::new(self.channel.clone());
        client.pause(rollouts::PauseRequest { group: group.into() }).await.unwrap();
    }

    pub async fn resume(&self, group: &str) {
        let mut client = RolloutServiceClient::new(self.channel.clone());
        client.resume(rollouts::ResumeRequest { group: group.into() }).await.unwrap();
    }
}

async fn dial(world: &World, address: &str) -> Result<Channel, String> {
    let admin = user(&authority_in(&world.store).await, Role::Admin, HOUR, Timestamp::now());
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let dialled = refit_proto::dial(address, name, client_config(&admin).unwrap()).await;
    dialled.map_err(|error| error.to_string())
}
