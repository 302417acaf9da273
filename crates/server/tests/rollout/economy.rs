//! What a rollout costs the store: a host's record is written when it becomes a member and when it starts,
//! and its arrival goes with its heartbeat.

use std::sync::Arc;
use std::time::Duration;

use refit_loadgen::{Conduct, HostOptions, SimulatedHost, UpdateObserver};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{NEW, OLD, World, group, regular};

const HOSTS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_write_each_host_twice_and_a_record_for_each_batch() {
    let world = World::start(2).await;
    let observer = Arc::new(UpdateObserver::default());
    let mut hosts = JoinSet::new();
    for (n, joined) in world.joined(HOSTS).await.into_iter().enumerate() {
        let options = HostOptions {
            servers: world.addresses(),
            first: n,
            labels: [("environment".to_owned(), "staging".to_owned())].into(),
            version: OLD.into(),
            conduct: Conduct::Upgrades,
            takes: Duration::from_millis(200),
            confirms: false,
            asks_every: None,
            beats_every: Duration::from_secs(10),
        };
        hosts.spawn(SimulatedHost::new(joined, options, observer.clone()).live());
    }
    // All are there before anything begins.
    let mut config = regular(&[group("canary", "staging", true, json!({ "max_in_flight": "25%" }))]);
    config["agent_auto_update"] = json!(false);
    world.configure(config.clone()).await;
    world.choose(NEW, "regular").await;
    let all = u32::try_from(HOSTS).unwrap();
    world.until("canary", |group| group.newcomers == all).await;
    config["agent_auto_update"] = json!(true);
    world.configure(config).await;
    let group = world.until("canary", |group| group.state == "succeeded").await;
    assert_eq!((group.members, group.upgraded, group.failed), (all, all, 0), "{group:?}");
    assert!(observer.peak() <= all / 4, "{} were under way at once", observer.peak());
    assert_eq!((observer.began(), observer.arrived()), (all, all));

    let written =
        async |what: &str| world.metric(&format!("refit_rollout_writes_total{{what=\"{what}\"}}")).await;
    let (transitions, arrivals, groups) =
        (written("mark").await, written("arrival").await, written("group").await);
    let hosts_written = u64::try_from(HOSTS).unwrap();
    let shown = format!("{transitions} transitions, {arrivals} with heartbeats, {groups} of the group");
    assert!(transitions >= 2 * hosts_written && transitions * 10 <= 21 * hosts_written, "{shown}");
    assert!(transitions + arrivals == 3 * hosts_written, "{shown}");
    // A batch for each second in which something arrives, and a few for the window and the members.
    assert!(groups <= 2 * hosts_written / 3, "{shown}");
    hosts.abort_all();
    world.shut_down().await;
}
