//! Agents get a hint at once when their host is due, whichever server decided it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_loadgen::{Joined, SimulatedAgent};
use refit_proto::agent::v1::HeartbeatReply;
use refit_proto::rollouts::v1 as wire;
use refit_testbed::{eventually, until_seen};
use refit_types::UpdaterStatus;
use serde_json::json;

use crate::world::{NEW, OLD, SOON, World, group, regular};

/// Well below the time between two heartbeats.
const MOMENTS: Duration = Duration::from_secs(8);

async fn connect(address: &str, joined: &Joined) -> SimulatedAgent {
    let labels = HashMap::from([("environment".to_owned(), "staging".to_owned())]);
    let mut agent = SimulatedAgent::connect_as(address, joined, labels, OLD).await.unwrap();
    agent.set_updater_status(&UpdaterStatus { agent_updates_enabled: true, ..Default::default() });
    agent.beat().await.unwrap();
    agent
}

async fn hint(agent: &mut SimulatedAgent) -> HeartbeatReply {
    loop {
        let reply = agent.next_reply().await.unwrap();
        if reply.upgrade_due {
            return reply;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_every_server_hear_at_once_that_they_are_due() {
    let world = World::start(2).await;
    let addresses = world.addresses();
    let joined = world.joined(8).await;
    let mut agents = Vec::new();
    for (n, joined) in joined.iter().enumerate() {
        agents.push(connect(&addresses[n % 2], joined).await);
    }
    world.until_known(&joined.iter().map(|joined| joined.host).collect::<Vec<_>>()).await;
    world.configure(regular(&[group("canary", "staging", true, json!({}))])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 8).await;
    let stored = Instant::now();
    for (agent, joined) in agents.iter_mut().zip(&joined) {
        let left = MOMENTS.saturating_sub(stored.elapsed());
        let told = tokio::time::timeout(left, hint(agent)).await.expect("a hint within moments");
        let upgrade = world.host_record(joined.host).await.upgrade.unwrap();
        assert_eq!((told.attempt, upgrade.attempt), (1, 1));
        let found = agent.find().await.unwrap();
        assert!(found.agent_auto_update && found.agent_update_attempt == 1, "{found:?}");
        agent.acknowledge(told.attempt);
        agent.beat().await.unwrap();
        let report = world.host_record(joined.host).await.report.unwrap();
        assert_eq!(report.hint_acknowledged, 1, "the acknowledgement is in the record");
    }
    let woken = |hosts: &Vec<wire::GroupHost>| {
        hosts.iter().filter(|host| host.reason.contains("its agent has woken its updater")).count()
    };
    // One server learns from the store what agents said to the other.
    let in_flight = || world.hosts_of("canary", "in_flight");
    until_seen("all agents have woken their updaters", SOON, in_flight, |hosts| woken(hosts) == 8).await;

    // Whoever has the version is told no more.
    agents[0].set_version(NEW);
    let reply = agents[0].beat().await.unwrap();
    assert!(!reply.upgrade_due || reply.attempt == 1);
    world.until("canary", |group| group.upgraded == 1).await;
    let end = Instant::now() + SOON;
    while agents[0].beat().await.unwrap().upgrade_due {
        assert!(Instant::now() < end, "it is still told to go");
    }
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_that_report_as_one_host_the_later_one_is_told() {
    let world = World::start(1).await;
    let address = world.addresses().remove(0);
    let joined = world.joined(1).await.remove(0);
    let mut first = connect(&address, &joined).await;
    let second = Timestamp::now().as_second();
    eventually("the next second", SOON, || async { Timestamp::now().as_second() > second }).await;
    let mut later = connect(&address, &joined).await;
    assert!(first.beat().await.unwrap().duplicate_host);
    world.configure(regular(&[group("canary", "staging", true, json!({}))])).await;
    world.choose(NEW, "regular").await;
    let told = tokio::time::timeout(MOMENTS + MOMENTS, async {
        loop {
            // The stream that spoke last is the one that is woken; the later process must be told whatever
            // the first one says in between.
            first.beat().await.unwrap();
            let reply = later.beat().await.unwrap();
            if reply.upgrade_due {
                return reply.attempt;
            }
        }
    });
    let attempt = told.await.expect("a hint");
    for _ in 0..3 {
        assert!(!first.beat().await.unwrap().upgrade_due, "the first process is told too");
    }
    first.acknowledge(attempt);
    first.beat().await.unwrap();
    assert_eq!(
        world.host_record(joined.host).await.report.unwrap().hint_acknowledged,
        0,
        "of the wrong process"
    );
    later.acknowledge(attempt);
    later.beat().await.unwrap();
    // A reply may be one that the server sent by itself before it heard this.
    eventually("the acknowledgement is stored", SOON, || async {
        world.host_record(joined.host).await.report.unwrap().hint_acknowledged == attempt
    })
    .await;
    world.shut_down().await;
}
