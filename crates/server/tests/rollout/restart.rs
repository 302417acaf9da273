//! A server that is started anew goes on where the one before was, with nothing but its own file.

use std::path::Path;

use refit_identity::Identity;
use refit_loadgen::{Joined, SimulatedAgent};
use refit_proto::rollouts::v1::Group;
use refit_server::Server;
use serde_json::json;
use tonic::transport::Channel;

use crate::cluster::{connect, start};
use crate::world::{NEW, OLD, group, joined, open_settings, regular, rollout, set, until};

async fn server(directory: &Path) -> (Server, Channel) {
    let server = start(open_settings(directory)).await.unwrap();
    let admin = Identity::read(&directory.join("admin/identity.json")).unwrap();
    let channel = connect(&server, Some(&admin)).await;
    (server, channel)
}

async fn agent(server: &Server, joined: &Joined, version: &str) -> SimulatedAgent {
    let labels = [("environment".to_owned(), "staging".to_owned())].into();
    let address = server.local_address().to_string();
    SimulatedAgent::connect_as(&address, joined, labels, version).await.unwrap()
}

fn counts(group: &Group) -> (u32, u32, u32, u32, u32) {
    (group.members, group.upgraded, group.failed, group.timed_out, group.in_flight)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_goes_on_with_the_same_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (first, admin) = server(directory.path()).await;
    let hosts = joined(&first, 10).await;
    let mut agents = Vec::new();
    for host in &hosts {
        agents.push(agent(&first, host, OLD).await);
    }
    let config = regular(&[group("canary", "staging", true, json!({ "max_in_flight": "30%" }))]);
    set(&admin, "cluster_maintenance_config", config).await.unwrap();
    set(&admin, "autoupdate_version", json!({ "agent_version": NEW })).await.unwrap();
    until(&admin, "canary", |group| counts(group) == (10, 0, 0, 0, 3)).await;
    let mut flying = Vec::new();
    for (n, agent) in agents.iter_mut().enumerate() {
        if agent.find().await.unwrap().agent_auto_update {
            flying.push(n);
        }
    }
    assert_eq!(flying.len(), 3);
    agents[flying[0]].set_version(NEW);
    agents[flying[0]].beat().await.unwrap();
    until(&admin, "canary", |group| counts(group) == (10, 1, 0, 0, 3)).await;
    let epoch = rollout(&admin).await.epoch;
    drop((agents, admin));
    first.shut_down().await;

    let (second, admin) = server(directory.path()).await;
    until(&admin, "canary", |group| counts(group) == (10, 1, 0, 0, 3) && group.state == "active").await;
    assert_eq!(rollout(&admin).await.epoch, epoch, "no epoch begins because a server does");
    // One that had started has the version meanwhile; the others still have the old one.
    let mut agents = Vec::new();
    for (n, host) in hosts.iter().enumerate() {
        let version = if n == flying[0] || n == flying[1] { NEW } else { OLD };
        agents.push(agent(&second, host, version).await);
    }
    until(&admin, "canary", |group| counts(group) == (10, 2, 0, 0, 3)).await;
    let told = agents[flying[2]].find().await.unwrap();
    assert_eq!((told.agent_auto_update, told.agent_update_attempt), (true, 1), "the same attempt");
    for agent in &mut agents {
        agent.set_version(NEW);
        agent.beat().await.unwrap();
    }
    let group = until(&admin, "canary", |group| group.state == "succeeded").await;
    assert_eq!(counts(&group), (10, 10, 0, 0, 0));
    drop((agents, admin));
    second.shut_down().await;
}
