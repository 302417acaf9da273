//! Without its store a server tells no host to update; it resumes when the store is back.

use std::time::{Duration, Instant};

use refit_loadgen::SimulatedAgent;
use refit_testbed::{Etcd, Proxy};
use serde_json::json;

use crate::cluster::empty_store;
use crate::world::{NEW, OLD, SOON, World, group, regular};

/// How long a server may go by what it last read.
const KNOWS_FOR: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_store_tells_nobody_to_go() {
    let store = empty_store().await;
    let proxy = Proxy::to(Etcd::shared().await.endpoint()).await;
    let through = store.replace(&Etcd::shared().await.endpoint(), &proxy.endpoint());
    assert_ne!(through, store);
    let world = World::at(&store, &through, 1).await;
    let joined = world.joined(4).await;
    let address = world.addresses().remove(0);
    let mut agents = Vec::new();
    for joined in &joined {
        let labels = [("environment".to_owned(), "staging".to_owned())].into();
        agents.push(SimulatedAgent::connect_as(&address, joined, labels, OLD).await.unwrap());
    }
    world.configure(regular(&[group("canary", "staging", true, json!({ "failure_seconds": 0 }))])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 4).await;
    assert!(agents[0].find().await.unwrap().agent_auto_update);

    proxy.set_blocked(true);
    let cut = Instant::now();
    assert!(agents[0].find().await.unwrap().agent_auto_update, "it goes by what it read a moment ago");
    while agents[0].find().await.unwrap().agent_auto_update {
        assert!(cut.elapsed() < KNOWS_FOR * 2, "it still tells hosts to go");
    }
    assert!(cut.elapsed() <= KNOWS_FOR + Duration::from_secs(1), "{:?}", cut.elapsed());
    let found = agents[0].find().await.unwrap();
    assert_eq!((found.agent_version.as_str(), found.agent_update_attempt), (NEW, 0));
    // A heartbeat is either refused or answered without a hint, behind the one that it was told before.
    let mut agent = agents.remove(1);
    let untold = async { while agent.beat().await.is_ok_and(|reply| reply.upgrade_due) {} };
    tokio::time::timeout(SOON, untold).await.expect("it is still told to go");

    proxy.set_blocked(false);
    let back = Instant::now();
    while !agents[0].find().await.unwrap().agent_auto_update {
        assert!(back.elapsed() < SOON, "it does not go on");
    }
    // All come back, or are still there; nobody failed for the time in between.
    drop(agents);
    for joined in &joined {
        let labels = [("environment".to_owned(), "staging".to_owned())].into();
        let mut agent = SimulatedAgent::connect_as(&address, joined, labels, NEW).await.unwrap();
        agent.beat().await.unwrap();
    }
    let group = world.until("canary", |group| group.state == "succeeded").await;
    assert_eq!((group.upgraded, group.failed, group.timed_out), (4, 0, 0), "{group:?}");
    let events = world.events().await;
    assert!(events.iter().all(|event| event.r#type != "group.halted"), "{events:?}");
    world.shut_down().await;
}
