//! A host that runs the version does not count as upgraded until its updater commits: it may still roll back.

use std::collections::HashMap;
use std::time::Instant;

use jiff::Timestamp;
use refit_loadgen::SimulatedAgent;
use refit_testbed::eventually;
use refit_types::{UpdateFailure, UpdaterStatus};
use serde_json::json;

use crate::world::{NEW, OLD, SOON, World, group, regular};

fn installed(version: &str) -> UpdaterStatus {
    let agent_version_installed = version.parse().ok();
    UpdaterStatus { agent_version_installed, agent_updates_enabled: true, ..UpdaterStatus::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_counts_as_upgraded_once_its_updater_agrees_and_as_failed_if_it_goes_back() {
    let world = World::start(1).await;
    let address = world.addresses().remove(0);
    let mut agents = Vec::new();
    let joined = world.joined(2).await;
    for joined in &joined {
        let labels = HashMap::from([("environment".to_owned(), "staging".to_owned())]);
        let mut agent = SimulatedAgent::connect_as(&address, joined, labels, OLD).await.unwrap();
        agent.set_updater_status(&installed(OLD));
        agent.beat().await.unwrap();
        agents.push(agent);
    }
    let strict = json!({ "max_failed_before_halt": "0%" });
    world.configure(regular(&[group("canary", "staging", true, strict)])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 2).await;

    for (agent, joined) in agents.iter_mut().zip(&joined) {
        agent.set_version(NEW);
        agent.beat().await.unwrap();
        eventually("what it runs is stored", SOON, || async {
            world.host_record(joined.host).await.report.unwrap().version.to_string() == NEW
        })
        .await;
    }
    let group = world.group("canary").await;
    assert_eq!((group.upgraded, group.in_flight), (0, 2), "{group:?}");
    let hosts = world.hosts_of("canary", "in_flight").await;
    assert!(hosts.iter().all(|host| host.reason.contains("which its updater watches")), "{hosts:?}");
    let end = Instant::now() + SOON;
    while agents[0].beat().await.unwrap().upgrade_due {
        assert!(Instant::now() < end, "it is still told to go, and its updater is at it");
    }

    agents[0].set_updater_status(&installed(NEW));
    agents[0].beat().await.unwrap();
    world.until("canary", |group| (group.upgraded, group.in_flight) == (1, 1)).await;

    let failure = UpdateFailure {
        attempt: 1,
        version: NEW.parse().unwrap(),
        step: "health".into(),
        reason: "the agent ended".into(),
        at: Timestamp::now(),
        agent: None,
    };
    agents[1].set_version(OLD);
    agents[1].set_updater_status(&UpdaterStatus { last_failure: Some(failure), ..installed(OLD) });
    agents[1].beat().await.unwrap();
    let group = world.until("canary", |group| group.state == "halted").await;
    assert_eq!((group.upgraded, group.failed, group.in_flight), (1, 1, 0), "{group:?}");
    world.shut_down().await;
}
