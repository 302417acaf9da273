//! What updaters are told is what is stored: every host of a fleet in mid-rollout asks, and each answer is
//! compared with what the records and the configuration say, worked out plainly.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, stream};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use refit_types::{GroupRecord, HostRecord, Upgrade};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tower::ServiceExt;

use crate::cluster::connect;
use crate::world::{NEW, SOON, World, group, host, regular, updater, window};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    version: String,
    go: bool,
    jitter: u64,
    attempt: u64,
}

/// The settings of operators, as the test wrote them: environments by group, and the groups' numbers.
#[derive(Clone, Default)]
struct Settings {
    version: String,
    enabled: bool,
    paused: bool,
    immediate: bool,
    /// Name, environment, jitter and time-out of each group.
    groups: Vec<(&'static str, &'static str, u64, i64)>,
}

const POLICY_JITTER: u64 = 9;
const IMMEDIATE_JITTER: u64 = 11;

impl Settings {
    fn expected(
        &self,
        host_record: Option<&HostRecord>,
        records: &BTreeMap<String, GroupRecord>,
        now: Timestamp,
    ) -> Told {
        let told = |go: bool, jitter: u64, attempt: u64| Told {
            version: self.version.clone(),
            go: go && self.enabled,
            jitter,
            attempt: if go && self.enabled { attempt } else { 0 },
        };
        let epoch = records.values().map(|record| record.epoch).max().unwrap_or(0);
        let is_halted = |record: &GroupRecord| record.epoch == epoch && record.is_halted();
        // No version has ended well here, so new hosts are named this one all the same.
        if host_record.is_none() && (self.paused || records.values().any(is_halted)) {
            return told(false, 0, 0);
        }
        if self.immediate {
            return told(!self.paused, IMMEDIATE_JITTER, 0);
        }
        // The policy's window is always open here.
        let by_policy = told(!self.paused, POLICY_JITTER, 0);
        let Some(host_record) = host_record else { return by_policy };
        let is_newcomer =
            |upgrade: &Upgrade| upgrade.newcomer.is_some_and(|newcomer| newcomer.epoch == epoch);
        let upgrade =
            host_record.upgrade.as_ref().filter(|upgrade| upgrade.epoch == epoch || is_newcomer(upgrade));
        let report = host_record.report.as_ref().unwrap();
        let environment = report.instance_labels.get("environment").unwrap_or("none at all");
        let found = self.groups.iter().find(|(name, of, ..)| match upgrade {
            Some(upgrade) => upgrade.group_name.as_str() == *name,
            None => *of == environment,
        });
        let Some((name, _, jitter, timeout)) = found else { return by_policy };
        let record = records.get(*name).filter(|record| record.epoch == epoch);
        let (Some(upgrade), Some(record)) = (upgrade, record) else { return told(false, *jitter, 0) };
        let started = upgrade.start_time.filter(|_| !upgrade.carried);
        let Some(started) = started else { return told(false, *jitter, 0) };
        let in_window = record
            .window
            .is_some_and(|window| window.start <= now && now < window.end && started >= window.start);
        let takes = SignedDuration::from_secs(timeout + i64::try_from(*jitter).unwrap());
        let goes_on = report.hint_acknowledged == upgrade.attempt && now < started + takes;
        let may_go = !self.paused && record.paused.is_none() && !record.is_halted();
        told(may_go && (in_window || goes_on), *jitter, upgrade.attempt)
    }
}

async fn ask(channel: &Channel, query: &str) -> Told {
    let uri = format!("https://refit/v1/webapi/find{query}");
    let request = Request::get(uri).body(tonic::body::Body::empty()).unwrap();
    let response = channel.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{query}");
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), 1 << 16).await.unwrap();
    let found: Value = serde_json::from_slice(&body).unwrap();
    Told {
        version: found["agent_version"].as_str().unwrap().into(),
        go: found["agent_auto_update"].as_bool().unwrap(),
        jitter: found["agent_update_jitter_seconds"].as_u64().unwrap(),
        attempt: found["agent_update_attempt"].as_u64().unwrap_or(0),
    }
}

/// Asks every server for every host, and for some that are none, until all answers are as the store says.
async fn agrees(world: &World, settings: &Settings, moment: &str) -> usize {
    let end = Instant::now() + SOON;
    loop {
        let (hosts, records) = (world.host_records().await, world.records().await);
        let mut queries: Vec<(String, Option<&HostRecord>)> =
            hosts.iter().map(|host| (format!("?host={}", host.host_id), Some(host))).collect();
        let unknown = host(u128::MAX / 3).to_string();
        let strangers = ["", "?host=", "?host=no-uuid", "?host=%00", &format!("?host={unknown}")];
        queries.extend(strangers.map(|query| (query.to_owned(), None)));
        let mut wrong = Vec::new();
        let mut told = 0;
        for server in &world.servers {
            let channel = connect(server, None).await;
            let asks = queries.iter().map(async |(query, host)| (query, *host, ask(&channel, query).await));
            let answers: Vec<_> = stream::iter(asks).buffer_unordered(32).collect().await;
            for (query, host, answer) in answers {
                let expected = settings.expected(host, &records, Timestamp::now());
                told += usize::from(host.is_some() && answer.go);
                if answer != expected {
                    wrong.push(format!("{query}: {answer:?}, and not {expected:?}"));
                }
            }
        }
        if wrong.is_empty() {
            return told / world.servers.len();
        }
        assert!(Instant::now() < end, "{moment}: {} are wrong, the first is {}", wrong.len(), wrong[0]);
    }
}

fn policy() -> Value {
    let mut schedule = window(true);
    schedule["jitter_seconds"] = json!(POLICY_JITTER);
    json!({ "enabled": true, "regular": schedule, "immediate": { "jitter_seconds": IMMEDIATE_JITTER } })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_host_is_told_what_is_stored() {
    let world = World::start(2).await;
    world.add(1..151, "staging").await;
    world.add(1001..1061, "production").await;
    world.add(2001..2041, "development").await;
    world.add(3001..3031, "").await;
    for n in 1..=20 {
        world.change(host(n), |host| updater(host).held = Some("the disk is full".into())).await;
    }
    for n in 21..=30 {
        let away = |host: &mut HostRecord| {
            host.server = None;
            host.last_seen -= SignedDuration::from_hours(1);
        };
        world.change(host(n), away).await;
    }
    let config = |enabled: bool, failed: &str| {
        let fields = json!({ "max_in_flight": "10%", "jitter_seconds": 7, "max_failed_before_halt": failed });
        let mut config = regular(&[
            group("canary", "staging", true, fields),
            group("main", "production", true, json!({ "requires": ["canary"], "jitter_seconds": 3 })),
            group("later", "development", false, json!({ "jitter_seconds": 5 })),
        ]);
        config["agent_auto_update"] = policy();
        config["agent_auto_update"]["enabled"] = json!(enabled);
        config
    };
    let groups =
        vec![("canary", "staging", 7, 900), ("main", "production", 3, 900), ("later", "development", 5, 900)];
    let mut settings =
        Settings { version: NEW.into(), enabled: true, paused: false, immediate: false, groups };
    world.configure(config(true, "100%")).await;
    world.choose(NEW, "regular").await;
    let told = ask(&connect(&world.servers[0], None).await, "").await;
    assert_eq!(told.version, NEW, "whoever asks next is told what was chosen");
    // Of 140 that can be heard, 14 may be in flight.
    world.until("canary", |group| group.in_flight == 14 && group.members == 140).await;
    assert_eq!(agrees(&world, &settings, "at first").await, 14 + 30);

    let flying = world.flying("canary").await;
    for host in &flying[..3] {
        world.arrives(*host, NEW).await;
    }
    for host in &flying[3..5] {
        world.undoes(*host).await;
    }
    for host in &flying[5..7] {
        world.takes_too_long(*host).await;
    }
    for host in &flying[7..9] {
        world
            .change(*host, |host| {
                host.report.as_mut().unwrap().hint_acknowledged = host.upgrade.as_ref().unwrap().attempt;
            })
            .await;
    }
    world.add(151..161, "staging").await;
    let counts = |group: &refit_proto::rollouts::v1::Group| {
        (group.upgraded, group.failed, group.timed_out, group.in_flight, group.newcomers)
    };
    world.until("canary", |group| counts(group) == (3, 2, 2, 14, 10)).await;
    // Those that ended are told the same as before; only a start before this window is of another one.
    assert!(agrees(&world, &settings, "in mid-window").await >= 14 + 5 + 30);

    let flying = world.flying("canary").await;
    world.pause("").await.unwrap();
    world.arrives(flying[flying.len() - 1], NEW).await;
    world.until("canary", |group| group.upgraded == 4 && group.in_flight == 2).await;
    settings.paused = true;
    assert_eq!(agrees(&world, &settings, "paused").await, 0, "nobody, whether it had acknowledged or not");
    settings.paused = false;
    world.resume("").await.unwrap();
    world.until("canary", |group| group.in_flight == 14).await;

    world.configure(config(true, "1%")).await;
    world.until("canary", |group| group.state == "halted" && group.in_flight == 2).await;
    assert_eq!(agrees(&world, &settings, "halted").await, 30, "only hosts without a group");

    world.configure(config(true, "100%")).await;
    world.run("canary").await.unwrap();
    world.until("canary", |group| group.in_flight == 15 && group.members == 150 && group.by_hand).await;
    agrees(&world, &settings, "run by hand").await;

    world.configure(config(false, "100%")).await;
    settings.enabled = false;
    // Two have acknowledged: they may have switched, and keep their slots.
    world.until("canary", |group| group.state == "scheduled" && group.in_flight == 2).await;
    assert_eq!(agrees(&world, &settings, "switched off").await, 0);
    world.configure(config(true, "100%")).await;
    settings.enabled = true;
    world.until("canary", |group| group.in_flight == 15).await;
    agrees(&world, &settings, "switched on").await;

    world.choose("15.2.0", "regular").await;
    settings.version = "15.2.0".into();
    world.until("canary", |group| group.in_flight == 15 && group.upgraded == 0).await;
    let told = agrees(&world, &settings, "another version").await;
    assert_eq!(told, 30, "all slots are taken by hosts that may be under way to the version before");

    world.choose("15.2.0", "immediate").await;
    settings.immediate = true;
    assert_eq!(agrees(&world, &settings, "immediate").await, 290);
    world.shut_down().await;
}
