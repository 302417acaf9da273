//! Heartbeats of a running agent: contents and delay; and its signals.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, has_all, new_token, node, pasted};
use crate::host::{Host, REFIT, eventually};

/// Well before the next regular heartbeat, with room for a slow machine: a label is asked for every 10 s.
const SOON: Duration = Duration::from_secs(20);

#[track_caller]
fn arrives(host: &Host, uuid: &str, what: &str, holds: impl Fn(&Value) -> bool) {
    let began = Instant::now();
    eventually(what, || node(host, uuid).is_some_and(|node| holds(&node)));
    assert!(began.elapsed() < SOON, "{what}: only after {:?}", began.elapsed());
}

#[test]
fn changes_arrive_at_once_and_a_command_that_hangs_delays_nothing() {
    let host = Host::new();
    let _server = host.serve();
    let mood = host.write("mood", "calm\n");
    let config = json!({
        "refit": { "commands": [
            { "name": "hangs", "command": ["sleep", "1000"], "period": "10s" },
            { "name": "mood", "command": ["cat", mood], "period": "10s" },
        ]},
        "ssh_service": { "labels": { "rack": "r7" } },
    });
    let file = host.write("refit.yaml", &config.to_string());
    let token = new_token(&host, "node");
    let flags = ["--config", file.to_str().unwrap()];
    let began = Instant::now();
    let agent = Agent::start(&host, "web", &[&pasted(&token)[..], &flags].concat());
    agent.connects(&host);
    let uuid = agent.uuid();
    arrives(&host, &uuid, "the first value", |node| node["instance_labels"]["mood"] == "calm");
    assert!(began.elapsed() < SOON, "the hanging command is waited for: {:?}", began.elapsed());
    let seen = node(&host, &uuid).unwrap();
    assert_eq!(seen["node_labels"], json!({ "rack": "r7" }));
    assert_eq!((&seen["os"], &seen["arch"]), (&"linux".into(), &refit_types::host_arch().into()));
    let release = std::fs::read_to_string("/etc/os-release").unwrap();
    let id = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap().trim_matches('"');
    assert!(seen["os_version"].as_str().unwrap().starts_with(id), "{seen}");

    host.write("mood", "merry\n");
    arrives(&host, &uuid, "the changed label", |node| node["instance_labels"]["mood"] == "merry");
    eventually("the hanging one says so", || {
        let node = node(&host, &uuid).unwrap();
        node["instance_labels"]["hangs"].as_str().is_some_and(|value| value.contains("timed out"))
    });

    assert_eq!(node(&host, &uuid).unwrap()["upgrader"], "none");
    std::fs::create_dir(host.path("web").join("versions")).unwrap();
    let status = host.path("web").join("versions/status.json");
    let long = "x".repeat(20 * 1024);
    for (text, words) in [
        (json!({ "agent_updates_enabled": true }), "enabled"),
        (json!({ "agent_updates_enabled": true, "pinned_version": "1.2.3" }), "pinned to 1.2.3"),
        (
            json!({ "agent_updates_enabled": true, "held": "the disk is full", "unknown": long }),
            "held: the disk",
        ),
    ] {
        std::fs::write(host.path("next"), text.to_string()).unwrap();
        std::fs::rename(host.path("next"), &status).unwrap();
        let began = Instant::now();
        eventually(words, || host.ctl(&["nodes", "ls"]).good().contains(words));
        assert!(began.elapsed() < SOON, "{words}: only after {:?}", began.elapsed());
    }
    assert_eq!(node(&host, &uuid).unwrap()["updater"]["held"], "the disk is full");
    assert_eq!(agent.status(&host).unwrap()["connected"], true, "{}", agent.log());
}

#[test]
fn a_reload_becomes_what_is_at_the_path_and_a_stop_is_clean() {
    let host = Host::new();
    let server = host.serve();
    let link = host.path("refit");
    std::os::unix::fs::symlink(REFIT, &link).unwrap();
    let token = new_token(&host, "node");
    let mut agent = Agent::start_by(&link, &host, "web", &pasted(&token), &[]);
    agent.connects(&host);
    let before = agent.status(&host).unwrap();
    assert_eq!(before["pid"], agent.pid());

    // The next version leaves a trace and is the same otherwise.
    let trace = host.path("trace");
    let script = format!("#!/bin/sh\necho next >{}\nexec {REFIT} \"$@\"\n", trace.display());
    let next = host.write("next-version", &script);
    std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(&next, host.path("new-link")).unwrap();
    std::fs::rename(host.path("new-link"), &link).unwrap();
    agent.signal(Signal::HUP);
    let started = |status: &Value| status["started_at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    eventually("it is the next one", || {
        let status = agent.status(&host);
        status.is_some_and(|now| started(&now) > started(&before) && now["connected"] == true)
    });
    let after = agent.status(&host).unwrap();
    assert!(trace.exists(), "{}", agent.log());
    assert_eq!((&after["pid"], &after["host_id"]), (&before["pid"], &before["host_id"]));
    assert_ne!(after["session"], before["session"]);
    let pid = std::fs::read_to_string(host.path("web").join("agent.pid")).unwrap();
    assert_eq!(pid.trim(), agent.pid().to_string());
    assert_eq!(node(&host, &agent.uuid()).unwrap()["duplicate"], false, "{}", server.log());

    let data = host.path("web");
    let ask = ["agent", "status", "--data-dir", data.to_str().unwrap()];
    let text = host.refit(&ask).good();
    has_all(
        &text,
        &["Version", env!("CARGO_PKG_VERSION"), "Host", &agent.uuid(), "Cluster", "Connected", "yes"],
    );
    agent.signal(Signal::TERM);
    assert_eq!(agent.ends(), Some(0), "{}", agent.log());
    let gone = host.refit(&ask).bad(1);
    has_all(&gone, &["no agent is running"]);
}

#[test]
fn an_agent_that_became_another_version_says_so() {
    let host = Host::new();
    let _server = host.serve();
    let link = host.path("refit-link");
    std::os::unix::fs::symlink(REFIT, &link).unwrap();
    let token = new_token(&host, "node");
    let agent = Agent::start_by(&link, &host, "web", &pasted(&token), &[]);
    agent.connects(&host);
    let version = |host: &Host| node(host, &agent.uuid()).unwrap()["version"].clone();
    assert_eq!(version(&host), env!("CARGO_PKG_VERSION"));
    let next = host.path("next");
    host.refit(&["stamp", "--version", "9.8.7", REFIT, next.to_str().unwrap()]).good();
    std::fs::rename(&next, &link).unwrap();
    agent.signal(Signal::HUP);
    eventually("its heartbeat tells of the next version", || version(&host) == "9.8.7");
    assert_eq!(agent.status(&host).unwrap()["version"], "9.8.7");
}
