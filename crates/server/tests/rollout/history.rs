//! Whatever happens to a group, and whatever operators do to it, is told once and in order, though two
//! servers do the same work.

use serde_json::json;

use crate::world::{NEW, World, group, regular};

#[tokio::test(flavor = "multi_thread")]
async fn the_history_tells_every_transition_once_and_in_order() {
    let world = World::start(2).await;
    world.add(1..31, "staging").await;
    world.add(101..121, "production").await;
    let config = |failed: &str| {
        regular(&[
            group(
                "canary",
                "staging",
                true,
                json!({ "max_in_flight": "20%", "max_failed_before_halt": failed }),
            ),
            group("main", "production", true, json!({ "requires": ["canary"], "max_in_flight": "50%" })),
            group("empty", "nowhere", true, json!({ "requires": ["main"] })),
        ])
    };
    world.configure(config("0%")).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 6).await;
    world.pause("canary").await.unwrap();
    world.resume("canary").await.unwrap();
    world.pause("").await.unwrap();
    world.resume("").await.unwrap();
    let undone = world.flying("canary").await[0];
    world.undoes(undone).await;
    world.until("canary", |group| group.state == "halted").await;
    world.run("canary").await.unwrap();
    world.fly("canary", NEW).await;
    world.fly("main", NEW).await;
    world.until("empty", |group| group.waiting == "blocked: selects no hosts").await;
    let request = refit_proto::rollouts::v1::MarkDoneRequest { group: "empty".into() };
    world.rollouts().mark_done(request).await.unwrap();
    world.until("empty", |group| group.state == "succeeded").await;
    world.choose("15.2.0", "regular").await;
    world.until("canary", |group| group.in_flight == 6).await;

    let events = world.events().await;
    let told: Vec<(String, String)> = events
        .iter()
        .filter(|event| event.r#type.starts_with("group.") || event.r#type.starts_with("rollout."))
        .map(|event| (event.r#type.clone(), event.subject.clone()))
        .collect();
    let expected = [
        ("rollout.epoch", "rollout"),
        ("group.active", "group/canary"),
        ("rollout.paused", "group/canary"),
        ("rollout.resumed", "group/canary"),
        ("rollout.paused", "rollout"),
        ("rollout.resumed", "rollout"),
        ("group.halted", "group/canary"),
        ("group.run", "group/canary"),
        ("group.active", "group/canary"),
        ("group.succeeded", "group/canary"),
        ("group.active", "group/main"),
        ("group.succeeded", "group/main"),
        // It has no members, and does not succeed by itself.
        ("group.active", "group/empty"),
        ("group.marked_done", "group/empty"),
        ("rollout.epoch", "rollout"),
        ("group.active", "group/canary"),
    ];
    let expected: Vec<_> = expected.iter().map(|(kind, of)| (kind.to_string(), of.to_string())).collect();
    assert_eq!(told, expected, "{events:#?}");
    let actor = |kind: &str| events.iter().find(|event| event.r#type == kind).unwrap().actor.clone();
    assert_eq!((actor("group.run").as_str(), actor("rollout.paused").as_str()), ("alice", "alice"));
    assert!(actor("group.active").starts_with("server "));
    let halted = events.iter().find(|event| event.r#type == "group.halted").unwrap();
    assert!(halted.message.contains("1 of 30 failed, limit 0%"), "{halted:?}");
    world.shut_down().await;
}
