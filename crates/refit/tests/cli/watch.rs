//! `refitctl autoupdate watch` during a rollout: its output, and its exit codes for scripts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use refit_loadgen::{Conduct, FleetOptions, HostOptions, SimulatedFleet, SimulatedHost};
use refit_testbed::{eventually, far_hour};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::event_stream::Following;
use crate::host::{Host, ServerProcess, WITHIN};

const OLD: &str = "15.1.0";
/// In each of the two groups, of which the second waits for the first.
const HOSTS: usize = 2;

/// A cluster in which a version has been chosen, and nobody is told of it before the switch is on.
struct Cluster {
    host: Host,
    _server: ServerProcess,
    _fleet: JoinSet<()>,
}

fn groups() -> Value {
    let group = |name: &str, requires: &[&str]| {
        json!({
            "name": name,
            "agents": { "instance_labels_expression": format!("labels.group == {name:?}") },
            "start_hour": far_hour(),
            "window_hours": 24,
            "max_in_flight": "50%",
            "timeout_seconds": 900,
            "requires": requires,
        })
    };
    json!({
        "kind": "cluster_maintenance_config",
        "spec": {
            "agent_auto_update": { "enabled": false },
            "agent_auto_update_groups": { "regular": [group("first", &[]), group("second", &["first"])] },
        },
    })
}

/// Hosts that join the cluster with a token of it.
pub fn fleet_options(host: &Host, server: &ServerProcess, agents: usize, version: &str) -> FleetOptions {
    let invitation = host.ctl(&["nodes", "add", "--format", "json"]).json();
    let text = |name: &str| invitation[name].as_str().unwrap().to_owned();
    FleetOptions {
        proxy: server.address().into(),
        token: text("token"),
        ca_pin: text("ca_pin").parse().unwrap(),
        agents,
        at_once: 4,
        labels: 0,
        version: version.into(),
    }
}

impl Cluster {
    async fn with_hosts_that(conduct: Conduct) -> Self {
        let host = Host::new();
        let server = host.serve();
        host.ctl_with_input(&["create", "-"], &groups().to_string()).good();
        host.ctl(&["autoupdate", "update", "--set-agent-version=15.1.1", "--allow-missing"]).good();
        let options = fleet_options(&host, &server, 2 * HOSTS, OLD);
        let mut fleet = JoinSet::new();
        for (n, joined) in SimulatedFleet::join(&options).await.unwrap().into_iter().enumerate() {
            let options = HostOptions {
                servers: vec![server.address().into()],
                first: 0,
                labels: HashMap::from([("group".into(), ["first", "second"][n % 2].into())]),
                version: OLD.into(),
                conduct,
                takes: Duration::from_millis(100),
                confirms: false,
                asks_every: None,
                beats_every: Duration::from_secs(1),
            };
            fleet.spawn(SimulatedHost::new(joined, options, Arc::default()).live());
        }
        eventually("every host reports", WITHIN, async || {
            let nodes = host.ctl(&["nodes", "ls", "--format", "json"]).json();
            nodes.as_array().unwrap().iter().filter(|node| node["version"] == OLD).count() == 2 * HOSTS
        })
        .await;
        Self { host, _server: server, _fleet: fleet }
    }

    fn watch(&self, more: &[&str]) -> Following {
        Following::start(&self.host, &[&["autoupdate", "watch"], more].concat())
    }

    fn switch_on(&self) {
        self.host.ctl(&["autoupdate", "update", "--set-agent-auto-update=on"]).good();
    }
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// What a status says of the two groups.
fn of_groups(status: &Value, field: &str) -> Value {
    json!([status["groups"][0][field], status["groups"][1][field]])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_waits_for_the_last_host() {
    let cluster = Cluster::with_hosts_that(Conduct::Upgrades).await;
    let watch = cluster.watch(&["--until-done", "--format", "json"]);
    let mut told = vec![read(&watch.line())];
    assert_eq!(of_groups(&told[0], "state"), json!(["scheduled", "scheduled"]));
    cluster.switch_on();
    told.extend(watch.ends().good().lines().map(read));
    for (before, after) in told.iter().zip(&told[1..]) {
        assert_ne!(before["groups"], after["groups"], "nothing has changed");
        assert!(
            after["groups"][0]["state"] == "succeeded" || after["groups"][1]["upgraded"] == 0,
            "second did not wait: {after}"
        );
    }
    let last = told.last().unwrap();
    assert_eq!(of_groups(last, "state"), json!(["succeeded", "succeeded"]));
    assert_eq!(of_groups(last, "upgraded"), json!([HOSTS, HOSTS]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_learns_that_a_group_has_halted() {
    let cluster = Cluster::with_hosts_that(Conduct::RollsBack).await;
    let watch = cluster.watch(&["--until-done"]);
    assert_eq!(watch.line(), "Status: disabled");
    cluster.switch_on();
    let ended = watch.ends();
    assert!(ended.stdout.contains("first: halted at "), "{ended:?}");
    assert_eq!(ended.bad(1), "error: first halted: 1 of 2 failed, limit 0%\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_status_is_shown_until_interrupted() {
    let cluster = Cluster::with_hosts_that(Conduct::Upgrades).await;
    let watch = cluster.watch(&[]);
    assert_eq!(watch.line(), "Status: disabled");
    cluster.switch_on();
    let mut seen = String::new();
    while !seen.contains("second: succeeded at ") {
        seen += &format!("{}\n", watch.line());
    }
    assert!(seen.contains("Status: enabled\nVersion: v15.1.1\n"), "{seen}");
    assert!(!seen.contains('\u{1b}'), "nothing is for a terminal: {seen}");
    assert!(seen.contains("\n\nStatus: "), "a blank line is between them: {seen}");
    watch.signal(Signal::INT);
    assert_eq!(watch.ends().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_without_groups_is_waited_for_host_by_host_and_none_is_not() {
    let cluster = Cluster::with_hosts_that(Conduct::Upgrades).await;
    cluster
        .host
        .ctl(&["autoupdate", "update", "--set-agent-version=15.1.2", "--immediate", "--allow-missing"])
        .good();
    let watch = cluster.watch(&["--until-done", "--format", "json"]);
    let first = read(&watch.line());
    assert_eq!(first["ungrouped"]["on_version"], 0, "{first}");
    cluster.switch_on();
    let told = watch.ends().good();
    let last = read(told.lines().last().unwrap());
    assert_eq!(last["ungrouped"]["on_version"], 2 * HOSTS, "{told}");

    let nothing = Host::new();
    let _server = nothing.serve();
    let refused = nothing.ctl(&["autoupdate", "watch", "--until-done"]).bad(1);
    assert_eq!(refused, "error: no version has been chosen: there is nothing to wait for\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_hosts_and_groups_is_not_done() {
    let host = Host::new();
    let server = host.serve();
    for schedule in [&[][..], &["--immediate"]] {
        let choose = ["autoupdate", "update", "--set-agent-version=15.1.1", "--allow-missing"];
        host.ctl(&[&choose[..], schedule].concat()).good();
        let watch = Following::start(&host, &["autoupdate", "watch", "--until-done", "--format", "json"]);
        let first = read(&watch.line());
        assert_eq!((&first["groups"], &first["ungrouped"]["hosts"]), (&json!([]), &json!(0)), "{first}");
        let options = fleet_options(&host, &server, 1, "15.1.1");
        let joined = SimulatedFleet::join(&options).await.unwrap();
        let _fleet = SimulatedFleet::connect(&options, &joined).await.unwrap();
        let told = watch.ends().good();
        let last = told.lines().last().map(read).unwrap_or(first);
        assert_eq!(last["ungrouped"]["on_version"], 1, "it ended before a host ran the version: {last}");
        host.ctl(&["nodes", "rm", &joined[0].host.to_string()]).good();
    }
}
