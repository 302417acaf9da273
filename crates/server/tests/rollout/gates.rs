//! The gates of a rollout through the API: what a success takes, the way around, and the limit over a change of the
//! version.

use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{Resource, UpsertResourceRequest};
use refit_proto::rollouts::v1 as wire;
use refit_types::UpdateTarget;
use serde_json::json;
use tonic::{Code, Status};

use crate::world::{NEW, World, group, host, regular, updater};

const NEXT: &str = "15.9.0";

async fn mark_done(world: &World, group: &str) -> Result<(), Status> {
    world.rollouts().mark_done(wire::MarkDoneRequest { group: group.into() }).await.map(drop)
}

fn two_groups() -> serde_json::Value {
    regular(&[
        group("canary", "staging", true, json!({})),
        group("rest", "prod", true, json!({ "requires": ["canary"] })),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_nobody_can_be_upgraded_in_blocks_until_an_operator_marks_it_done() {
    let world = World::start(2).await;
    world.add(1..4, "staging").await;
    world.add(4..6, "prod").await;
    for n in 1..4 {
        world.change(host(n), |host| updater(host).agent_updates_enabled = false).await;
    }
    world.configure(two_groups()).await;
    world.choose(NEW, "regular").await;
    let blocked = "blocked: nobody could be upgraded, 3 held";
    let stuck = world.until("canary", |group| group.held == 3 && group.waiting == blocked).await;
    assert_eq!((stuck.state.as_str(), stuck.upgraded), ("active", 0));
    let reason = stuck.blocked_by.unwrap().reason.unwrap();
    assert!(matches!(reason, wire::blocked_by::Reason::NobodyUpgraded(why) if why.held == 3), "{reason:?}");
    assert_eq!(world.group("rest").await.waiting, "waiting for canary");

    let refused = mark_done(&world, "rest").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("2 hosts can be upgraded"), "{refused}");
    mark_done(&world, "canary").await.unwrap();
    let done = world.until("canary", |group| group.state == "succeeded").await;
    assert_eq!((done.marked_done_by.as_str(), done.marked_done_at.is_some()), ("alice", true));
    world.until("rest", |group| group.in_flight == 2).await;
    let told = world.events().await.into_iter().find(|event| event.r#type == "group.marked_done").unwrap();
    assert_eq!((told.actor.as_str(), told.subject.as_str()), ("alice", "group/canary"));
    assert!(mark_done(&world, "canary").await.unwrap_err().message().contains("it has succeeded"));

    // It holds for that version only.
    world.choose(NEXT, "regular").await;
    world.until("canary", |group| group.waiting == blocked && group.marked_done_at.is_none()).await;
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_the_version_before_is_none_of_this_one() {
    let world = World::start(1).await;
    world.add(1..2, "staging").await;
    world.add(2..3, "prod").await;
    let target = UpdateTarget { version: NEW.parse().unwrap(), attempt: 0 };
    world
        .change(host(1), |host| {
            updater(host).held = Some("no usable backup".into());
            updater(host).held_target = Some(target.clone());
        })
        .await;
    world.configure(two_groups()).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.held == 1).await;
    world.choose(NEXT, "regular").await;
    let next = world.until("canary", |group| group.in_flight == 1).await;
    assert_eq!((next.held, next.state.as_str()), (0, "active"));
    assert_eq!(world.group("rest").await.waiting, "waiting for canary");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_under_way_to_the_version_before_count_for_the_limit_and_in_the_status() {
    let world = World::start(2).await;
    world.add(1..13, "staging").await;
    world.configure(regular(&[group("canary", "staging", true, json!({ "max_in_flight": "50%" }))])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 6).await;
    let flying = world.flying("canary").await;
    for host in &flying {
        let attempt = world.host_record(*host).await.upgrade.unwrap().attempt;
        world.change(*host, |host| host.report.as_mut().unwrap().hint_acknowledged = attempt).await;
    }
    world.choose(NEXT, "regular").await;
    let changed = world.until("canary", |group| group.members == 12).await;
    assert_eq!((changed.in_flight, changed.limit), (6, 6), "all slots are taken");
    let hosts = world.hosts_of("canary", "in_flight").await;
    assert_eq!(hosts.len(), 6, "{hosts:?}");
    assert!(hosts.iter().all(|host| host.reason.contains("to go to an earlier version")), "{hosts:?}");

    // One calls it off, one arrives where it was sent: two others start.
    let attempt = world.host_record(flying[0]).await.upgrade.unwrap().attempt;
    let target = UpdateTarget { version: NEW.parse().unwrap(), attempt };
    world.change(flying[0], |host| updater(host).called_off = Some(target.clone())).await;
    world.arrives(flying[1], NEW).await;
    let is_told = |host: &wire::GroupHost| !host.reason.contains("to go to an earlier version");
    refit_testbed::eventually("two others start", crate::world::SOON, async || {
        let hosts = world.hosts_of("canary", "in_flight").await;
        assert!(hosts.len() <= 6, "{hosts:?}");
        hosts.iter().filter(|host| is_told(host)).count() == 2
    })
    .await;
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_starts_in_the_open_window_and_does_not_keep_its_group_from_succeeding() {
    let world = World::start(2).await;
    world.add(1..3, "staging").await;
    world.configure(two_groups()).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 2).await;
    world.arrives(host(1), NEW).await;
    world.until("canary", |group| group.upgraded == 1).await;
    world.add(3..4, "staging").await;
    let open = world.until("canary", |group| group.in_flight == 2).await;
    assert_eq!((open.members, open.newcomers, open.limit), (2, 0, 2));
    world.arrives(host(2), NEW).await;
    let done = world.until("canary", |group| group.state == "succeeded").await;
    assert_eq!((done.members, done.upgraded, done.in_flight), (2, 2, 1), "the newcomer is under way");
    world.arrives(host(3), NEW).await;
    let over = world.until("canary", |group| group.in_flight == 0).await;
    assert_eq!((over.members, over.upgraded, over.newcomers), (2, 2, 1));
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_select_nobody_are_warned_about() {
    let world = World::start(1).await;
    world.add(1..5, "staging").await;
    let groups = [group("canary", "staging", true, json!({})), group("rest", "production", true, json!({}))];
    let document = json!({ "kind": "cluster_maintenance_config", "spec": regular(&groups) });
    let request = UpsertResourceRequest {
        kind: "cluster_maintenance_config".into(),
        resource: Some(Resource { json: document.to_string(), ..Default::default() }),
        ..Default::default()
    };
    let mut client = ResourceServiceClient::new(world.admin.clone());
    let answer = client.upsert_resource(request).await.unwrap().into_inner();
    assert_eq!(answer.warnings, ["rest selects none of 4 hosts"]);
    world.choose(NEW, "regular").await;
    world.until("rest", |group| group.waiting == "blocked: selects no hosts").await;
    world.shut_down().await;
}
