//! An agent of 0.1 is told to update and tells what came of it, under the eyes of a `refitctl` of 0.1.

use refit_convert::{blocked_by_in_words, moment};
use refit_proto::rollouts::v1 as wire;
use refit_released::v0_1::rollouts::v1::GroupHost;
use refit_testbed::{eventually, until_seen};
use refit_types::{UpdateFailure, UpdaterStatus};
use serde_json::json;
use tonic::Code;

use crate::old_agent::OldAgent;
use crate::old_ctl::OldCtl;
use crate::world::{NEW, SOON, World, group, host, regular};

fn groups(enabled: bool, prod_slots: &str, prod_open: bool) -> serde_json::Value {
    let strict = json!({ "max_failed_before_halt": "0%" });
    let behind = json!({ "requires": ["canary"], "max_in_flight": prod_slots });
    let mut config =
        regular(&[group("canary", "staging", true, strict), group("prod", "prod", prod_open, behind)]);
    config["agent_auto_update"] = json!(enabled);
    config
}

/// What 0.1 reads in words is what a present reader makes of the reason.
async fn sentences_agree(world: &World, ctl: &OldCtl) {
    let (told, rollout) = (ctl.rollout().await, world.rollout().await);
    let now = moment(rollout.now).unwrap();
    for (old, new) in told.groups.iter().zip(&rollout.groups) {
        assert_eq!(old.name, new.name);
        let (made, sent) =
            (blocked_by_in_words(&wire::Group { waiting: String::new(), ..new.clone() }, now), &new.waiting);
        assert_eq!(made, *sent, "{}", new.name);
        assert_eq!(old.waiting.is_empty(), sent.is_empty(), "{new:?}");
        assert_eq!(old.state, new.state_text());
        assert_ne!(new.state_code, 0, "{new:?}");
    }
    assert_eq!(told.groups.len(), rollout.groups.len());
    assert_eq!(told.schedule, rollout.schedule_text());
    assert_ne!(rollout.schedule_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_0_1_is_told_to_update_and_says_what_came_of_it() {
    let world = World::start(1).await;
    let ctl = OldCtl::of(&world).await;
    let mut agent = OldAgent::join(&world.servers[0], "staging").await;
    world.until_known(&[agent.host]).await;
    world.add(1..4, "prod").await;
    world.configure(groups(true, "100%", true)).await;
    world.choose(NEW, "regular").await;

    let told = agent.until(|reply| reply.upgrade_due).await;
    assert_eq!(told.attempt, 1);
    ctl.until("canary", "active", "").await;
    ctl.until("prod", "scheduled", "waiting for canary").await;
    sentences_agree(&world, &ctl).await;
    agent.beat.hint_acknowledged = told.attempt;
    agent.send();
    agent.until(|_| true).await;
    let woken =
        |hosts: &Vec<GroupHost>| hosts.len() == 1 && hosts[0].reason.contains("has woken its updater");
    let in_flight = || async { ctl.hosts("canary", "in_flight").await.unwrap() };
    let hosts = until_seen("it is woken", SOON, in_flight, woken).await;
    assert_eq!((hosts[0].outcome.as_str(), hosts[0].attempt), ("in_flight", 1));

    // Its updater goes back: the group halts, until somebody runs it again.
    let failure = UpdateFailure {
        attempt: 1,
        version: NEW.parse().unwrap(),
        step: "health".into(),
        reason: "no answer".into(),
        at: jiff::Timestamp::now(),
        agent: None,
    };
    let went_back =
        UpdaterStatus { agent_updates_enabled: true, last_failure: Some(failure), ..Default::default() };
    agent.set_updater(&went_back);
    agent.send();
    ctl.until("canary", "halted", "halted: 1 of 1 failed, limit 0%").await;
    sentences_agree(&world, &ctl).await;
    let failed = ctl.hosts("canary", "failed").await.unwrap();
    assert_eq!(failed[0].outcome, "failed");
    assert!(failed[0].reason.contains("health: no answer"), "{failed:?}");
    assert!(ctl.hosts("canary", "upgraded").await.unwrap().is_empty());
    ctl.run("canary").await;
    assert_eq!(agent.until(|reply| reply.upgrade_due && reply.attempt == 2).await.attempt, 2);

    // This time it stays.
    agent.beat.version = NEW.into();
    agent.set_updater(&UpdaterStatus {
        agent_updates_enabled: true,
        agent_version_installed: Some(NEW.parse().unwrap()),
        ..Default::default()
    });
    agent.send();
    ctl.until("canary", "succeeded", "").await;
    assert_eq!(ctl.hosts("canary", "upgraded").await.unwrap()[0].outcome, "upgraded");
    assert_eq!(ctl.hosts("canary", "").await.unwrap().len(), 1);
    let node = ctl.nodes().await.into_iter().find(|node| node.hostname == "old").unwrap();
    assert_eq!(
        (node.edition.as_str(), node.upgrader.as_str(), node.version.as_str()),
        ("oss", "binary", NEW)
    );
    assert_eq!(node.roles, ["node"]);
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refitctl_of_0_1_reads_every_reason_and_acts_on_groups() {
    let world = World::start(1).await;
    let ctl = OldCtl::of(&world).await;
    world.add(1..4, "prod").await;
    world.add(4..6, "staging").await;
    world.configure(groups(true, "0%", true)).await;
    world.choose(NEW, "regular").await;
    assert_eq!(ctl.rollout().await.schedule, "regular");
    ctl.until("canary", "active", "").await;
    ctl.pause("canary").await;
    ctl.until("canary", "active", "paused ").await;
    sentences_agree(&world, &ctl).await;
    ctl.pause("").await;
    ctl.until("canary", "active", "the rollout was paused ").await;
    ctl.until("prod", "scheduled", "the rollout was paused ").await;
    sentences_agree(&world, &ctl).await;
    ctl.resume("").await;
    ctl.resume("canary").await;
    ctl.until("canary", "active", "").await;
    world.fly("canary", NEW).await;
    ctl.until("prod", "active", "max_in_flight is 0%").await;
    sentences_agree(&world, &ctl).await;
    assert_eq!(ctl.hosts("prod", "unchanged").await.unwrap().len(), 3);
    let refused = ctl.hosts("prod", "lucky").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    world.configure(groups(true, "100%", false)).await;
    ctl.until("prod", "scheduled", "window opens in ").await;
    sentences_agree(&world, &ctl).await;
    world.configure(groups(false, "100%", false)).await;
    ctl.until("prod", "scheduled", "automatic updates are disabled").await;
    sentences_agree(&world, &ctl).await;

    let made = ctl.token(&["node", "kube"]).await;
    assert_eq!(made.roles, ["node", "kube"]);
    let tokens = ctl.tokens().await;
    assert!(tokens.iter().any(|token| token.roles == ["node", "kube"]), "{tokens:?}");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refitctl_of_0_1_reads_that_members_are_away() {
    let world = World::start(1).await;
    let ctl = OldCtl::of(&world).await;
    world.add(1..4, "staging").await;
    let few = json!({ "max_timeout_before_halt": "0%", "max_in_flight": "1%" });
    world.configure(regular(&[group("canary", "staging", true, few)])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 1).await;
    // The last one goes away before its turn.
    world.change(host(3), |host| host.server = None).await;
    world.until("canary", |group| group.away == 1).await;
    eventually("the others are done", SOON, || async {
        for flying in world.flying("canary").await {
            world.arrives(flying, NEW).await;
        }
        world.group("canary").await.upgraded == 2
    })
    .await;
    ctl.until("canary", "active", "waiting for 1 of 3 members that are away").await;
    sentences_agree(&world, &ctl).await;
    assert_eq!(ctl.hosts("canary", "away").await.unwrap()[0].outcome, "away");
    world.shut_down().await;
}
