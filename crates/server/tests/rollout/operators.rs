//! Operators' actions on a rollout, and its status.

use jiff::Timestamp;
use refit_proto::nodes::v1::DeleteNodeRequest;
use refit_proto::resources::v1::DeleteResourceRequest;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::rollouts::v1 as wire;
use refit_types::{HostId, HostRecord, Outcome};
use serde_json::json;
use tonic::Code;

use crate::world::{NEW, World, group, host, regular, updater};

/// What is counted of a group must be what its members' records say.
async fn counts_hold(world: &World, name: &str) {
    let record = world.records().await.remove(name).unwrap();
    let hosts = world.host_records().await;
    let members: Vec<_> = hosts
        .iter()
        .filter_map(|host| host.upgrade.as_deref())
        .filter(|upgrade| upgrade.epoch == record.epoch && upgrade.group_name.as_str() == name)
        .collect();
    let count = |wanted: &dyn Fn(&refit_types::Upgrade) -> bool| {
        u32::try_from(members.iter().filter(|upgrade| wanted(upgrade)).count()).unwrap()
    };
    let this_round = |upgrade: &refit_types::Upgrade| upgrade.round == record.round;
    let counted =
        (record.members - record.removed, record.upgraded, record.failed, record.timed_out, record.in_flight);
    let found = (
        count(&|_| true),
        count(&|upgrade| matches!(upgrade.outcome, Some(Outcome::Upgraded { .. }))),
        count(&|upgrade| matches!(upgrade.outcome, Some(Outcome::Failed { .. })) && this_round(upgrade)),
        count(&|upgrade| matches!(upgrade.outcome, Some(Outcome::TimedOut { .. })) && this_round(upgrade)),
        count(&|upgrade| upgrade.outcome.is_none() && upgrade.start_time.is_some()),
    );
    assert_eq!(counted, found, "members, upgraded, failed, timed out, in flight: {record:?}");
}

async fn remove(world: &World, host: HostId) {
    world.nodes().delete_node(DeleteNodeRequest { host_id: host.to_string() }).await.unwrap();
}

fn ids(hosts: &[wire::GroupHost]) -> Vec<HostId> {
    hosts.iter().map(|host| host.host_id.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_listed_by_outcome_and_removed_with_what_is_counted_of_them() {
    let world = World::start(2).await;
    world.add(1..41, "staging").await;
    for n in [1, 2] {
        world
            .change(host(n), |host| {
                updater(host).held = Some("the disk is full".into());
                updater(host).agent_version_desired = NEW.parse().ok();
            })
            .await;
    }
    let config = regular(&[group("canary", "staging", true, json!({ "max_in_flight": "20%" }))]);
    world.configure(config).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.in_flight == 8 && group.limit == 8).await;
    let flying = world.flying("canary").await;
    assert_eq!(flying, (3..11).map(host).collect::<Vec<_>>(), "by their UUIDs, and none that is held");
    world.arrives(flying[0], NEW).await;
    world.arrives(flying[1], NEW).await;
    world.undoes(flying[2]).await;
    world.undoes(flying[3]).await;
    world.takes_too_long(flying[4]).await;
    world.takes_too_long(flying[5]).await;
    world.until("canary", |group| (group.upgraded, group.failed, group.timed_out) == (2, 2, 2)).await;
    world.until("canary", |group| group.in_flight == 8).await;
    world.change(host(40), |host| host.server = None).await;
    world.add(41..43, "staging").await;
    world.until("canary", |group| group.away == 1 && group.newcomers == 2).await;
    counts_hold(&world, "canary").await;

    let reasons = [
        ("upgraded", 2, ""),
        ("failed", 2, "rolled back by its updater at health: the agent ended (exit status 3)"),
        ("timed_out", 2, "still on 15.0.0"),
        ("in_flight", 8, "told at "),
        ("held", 2, "the disk is full"),
        ("away", 1, "not connected since "),
        ("unchanged", 25, ""),
    ];
    for (outcome, count, reason) in reasons {
        let hosts = world.hosts_of("canary", outcome).await;
        assert_eq!(hosts.len(), count, "{outcome}");
        for host in hosts {
            assert!(host.outcome == outcome && host.reason.contains(reason), "{host:?}");
            let agent =
                host.failed_agent.as_ref().map(|agent| (agent.ended.as_str(), agent.last_lines.len()));
            assert_eq!(agent, (outcome == "failed").then_some(("exit status 3", 2)), "{host:?}");
        }
    }
    let all = ids(&world.hosts_of("canary", "").await);
    assert_eq!(all, (1..43).map(host).collect::<Vec<_>>());
    let (mut paged, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = wire::ListGroupHostsRequest {
            group: "canary".into(),
            outcome: "unchanged".into(),
            page_size: 4,
            page_token,
            ..Default::default()
        };
        let page = world.rollouts().list_group_hosts(request).await.unwrap().into_inner();
        assert!(page.hosts.len() <= 4);
        paged.extend(ids(&page.hosts));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(paged, ids(&world.hosts_of("canary", "unchanged").await), "page by page");

    // Nothing starts meanwhile, so that each removal is seen by itself. Starts that are acknowledged outlast that.
    let acknowledge = |host: &mut HostRecord| {
        let attempt = host.upgrade.as_ref().unwrap().attempt;
        host.report.as_mut().unwrap().hint_acknowledged = attempt;
    };
    for host in &world.flying("canary").await[..2] {
        world.change(*host, acknowledge).await;
    }
    world.pause("canary").await.unwrap();
    for outcome in ["upgraded", "failed", "timed_out", "in_flight", "held", "away", "unchanged"] {
        let before = world.records().await.remove("canary").unwrap();
        remove(&world, ids(&world.hosts_of("canary", outcome).await)[0]).await;
        counts_hold(&world, "canary").await;
        let after = world.records().await.remove("canary").unwrap();
        assert_eq!((after.removed, after.members), (before.removed + 1, before.members), "{outcome}");
    }
    remove(&world, host(42)).await;
    let record = world.records().await.remove("canary").unwrap();
    assert_eq!((record.removed, record.members), (7, 40), "one that was no member changes nothing");

    // Also while no version is chosen: what is counted goes on when it is chosen again.
    let versions = &mut ResourceServiceClient::new(world.admin.clone());
    let request = DeleteResourceRequest {
        kind: "autoupdate_version".into(),
        name: "autoupdate-version".into(),
        ..Default::default()
    };
    let flying = world.flying("canary").await[0];
    versions.delete_resource(request).await.unwrap();
    assert_eq!(world.rollout().await.groups.len(), 0);
    remove(&world, flying).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.removed == 8).await;
    counts_hold(&world, "canary").await;
    world.resume("canary").await.unwrap();
    world.until("canary", |group| group.in_flight == 8).await;

    world.run("canary").await.unwrap();
    world.until("canary", |group| group.failed == 0 && group.in_flight == 9 && group.by_hand).await;
    counts_hold(&world, "canary").await;
    for host in world.host_records().await {
        if host.upgrade.is_some() && host.server.is_some() {
            world
                .change(host.host_id, |host| {
                    updater(host).held = None;
                    host.report.as_mut().unwrap().version = NEW.parse().unwrap();
                })
                .await;
        }
    }
    let group = world.until("canary", |group| group.state == "succeeded").await;
    assert_eq!((group.upgraded, group.in_flight, group.failed), (group.members, 0, 0), "{group:?}");
    counts_hold(&world, "canary").await;
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_steer_and_are_told_why_they_cannot() {
    let world = World::start(1).await;
    let refused = async |asked: Result<(), tonic::Status>, code: Code, words: &str| {
        let status = asked.unwrap_err();
        assert!(status.code() == code && status.message().contains(words), "{status}");
    };
    refused(world.run("canary").await, Code::FailedPrecondition, "no version has been chosen").await;
    refused(world.pause("").await, Code::FailedPrecondition, "--set-agent-version").await;

    world.add(1..11, "staging").await;
    world.add(101..111, "production").await;
    let config = |limit: &str, open: bool| {
        regular(&[
            group("canary", "staging", open, json!({ "max_in_flight": limit })),
            group("main", "production", open, json!({ "requires": ["canary"] })),
        ])
    };
    world.configure(config("10%", false)).await;
    world.choose(NEW, "regular").await;
    let canary = world.until("canary", |group| group.state == "scheduled").await;
    assert!(canary.waiting.starts_with("window opens in "), "{canary:?}");
    refused(world.run("cannary").await, Code::NotFound, "expected canary, main").await;
    refused(world.pause(&"x".repeat(5000)).await, Code::NotFound, "there is no group").await;
    let unknown = wire::ListGroupHostsRequest { group: "cannary".into(), ..Default::default() };
    let status = world.rollouts().list_group_hosts(unknown).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    let outcome =
        wire::ListGroupHostsRequest { group: "main".into(), outcome: "lost".into(), ..Default::default() };
    let status = world.rollouts().list_group_hosts(outcome).await.unwrap_err();
    assert!(status.code() == Code::InvalidArgument && status.message().contains("timed_out"), "{status}");

    // By hand, the first group opens now; what it comes before still waits.
    world.run("main").await.unwrap();
    world.run("canary").await.unwrap();
    let canary = world.until("canary", |group| group.in_flight == 1).await;
    assert!(canary.by_hand && canary.members == 10 && canary.limit == 1, "{canary:?}");
    assert_eq!(world.group("main").await.waiting, "waiting for canary");

    // A limit applies at once, in both directions.
    world.configure(config("50%", false)).await;
    world.until("canary", |group| group.in_flight == 5 && group.limit == 5).await;
    world.configure(config("0%", false)).await;
    world.until("canary", |group| group.limit == 0).await;
    for host in world.flying("canary").await {
        world.arrives(host, NEW).await;
    }
    let canary = world.until("canary", |group| group.upgraded == 5).await;
    assert_eq!((canary.in_flight, canary.waiting.as_str()), (0, "max_in_flight is 0%: no host may start"));

    // Paused twice: the whole, and the group.
    world.pause("").await.unwrap();
    world.pause("canary").await.unwrap();
    world.configure(config("20%", false)).await;
    let canary = world.until("canary", |group| group.limit == 2).await;
    assert!(canary.in_flight == 0 && canary.waiting.starts_with("the rollout was paused"), "{canary:?}");
    world.resume("").await.unwrap();
    let canary = world.until("canary", |group| group.waiting.starts_with("paused")).await;
    assert!(canary.paused_at.is_some() && canary.in_flight == 0);
    world.resume("canary").await.unwrap();
    world.until("canary", |group| group.in_flight == 2 && group.paused_at.is_none()).await;

    // Off takes back what nobody acknowledged; on goes on.
    let mut off = config("20%", false);
    off["agent_auto_update"] = json!(false);
    world.configure(off).await;
    world.until("canary", |group| group.in_flight == 0 && group.waiting.contains("disabled")).await;
    refused(world.run("canary").await, Code::FailedPrecondition, "--set-agent-auto-update=on").await;
    counts_hold(&world, "canary").await;
    world.configure(config("20%", false)).await;
    world.until("canary", |group| group.in_flight == 2).await;

    // Another version begins anew; attempts are counted on, so that old reports stay old.
    let attempts = world.host_record(host(6)).await.upgrade.unwrap().attempt;
    let epoch = world.rollout().await.epoch;
    world.choose("15.2.0", "regular").await;
    let canary = world.until("canary", |group| group.state == "scheduled" && group.members == 0).await;
    let begun = (world.rollout().await.epoch, canary.upgraded, canary.in_flight);
    assert_eq!(begun, (epoch + 1, 0, 2), "two may still be under way to the version before");
    world.run("canary").await.unwrap();
    world.until("canary", |group| group.in_flight == 2).await;
    for host in world.flying("canary").await {
        assert!(world.host_record(host).await.upgrade.unwrap().attempt > attempts.min(1));
    }
    counts_hold(&world, "canary").await;

    // Two changes in quick succession, and a group that is no more.
    world.choose("15.3.0", "regular").await;
    world.choose("15.4.0", "regular").await;
    world.configure(regular(&[group("only", "production", true, json!({}))])).await;
    world.until("only", |group| group.in_flight == 10).await;
    let rollout = world.rollout().await;
    assert_eq!((rollout.version.as_str(), rollout.groups.len()), ("15.4.0", 1));
    assert_eq!(rollout.ungrouped.unwrap().hosts, 10);
    assert_eq!(world.records().await.into_keys().collect::<Vec<_>>(), ["only"]);
    counts_hold(&world, "only").await;

    world.choose("15.4.0", "immediate").await;
    refused(world.run("only").await, Code::FailedPrecondition, "groups do not count").await;
    assert!(world.rollout().await.began_at.is_some_and(|at| at.seconds <= Timestamp::now().as_second()));
    world.shut_down().await;
}
