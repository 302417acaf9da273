//! `refit-update supervise` with a real server, real archives and real agents: what systemd does elsewhere.

#![allow(clippy::unwrap_used)]

#[path = "updater/cluster.rs"]
mod cluster;
#[path = "supervisor/supervisor.rs"]
mod supervisor;
#[path = "supervisor/unproved.rs"]
mod unproved;

use std::cell::Cell;
use std::process::Stdio;
use std::time::Duration;

use cluster::{Cluster, Image, PATIENCE, said};
use refit_testbed::{Signal, eventually, far_hour};
use serde_json::json;
use supervisor::{Supervisor, is_alive, is_gone, pid, send};

/// An updater gives a version more than a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(240);

impl Image {
    /// Waits until the updater has switched to a version and waits for it to be healthy, as it does for a minute.
    async fn is_tried(&self, version: &str) {
        let journal = self.root.join("var/lib/refit/versions/journal.json");
        let tried = async || journal.exists() && self.active() == version;
        eventually(&format!("{version} is tried"), PATIENCE, tried).await;
    }
}

#[tokio::test]
async fn an_upgrade_keeps_the_process_and_a_downgrade_replaces_it() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    let first = supervisor.runs("1.2.3").await;
    assert_eq!(supervisor.state(), Some("running".into()));
    // The agent would wake the updater before we run it.
    supervisor.obeys(json!({"set_updates": false}));

    cluster.choose("1.2.4");
    assert_eq!(said(&image.update(&["update"])), "Updated from 1.2.3 to 1.2.4.\n");
    let second = supervisor.runs("1.2.4").await;
    assert_eq!(pid(&second), pid(&first), "it was reloaded");

    cluster.choose("1.2.3");
    assert_eq!(said(&image.update(&["update"])), "Updated from 1.2.4 to 1.2.3.\n");
    let third = supervisor.runs("1.2.3").await;
    assert_ne!(pid(&third), pid(&second), "its database was replaced while it was stopped");
    assert_eq!(third["host_id"], first["host_id"]);
    assert_eq!(image.active(), "1.2.3");
    assert_eq!(image.status()["agent_version_previous"], "1.2.4");
}

#[tokio::test]
async fn a_version_that_does_not_run_is_undone() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    supervisor.obeys(json!({"set_updates": false}));
    cluster.choose("1.2.5");
    let undone = image.update(&["update"]);
    let told = String::from_utf8_lossy(&undone.stderr).into_owned();
    assert_eq!(undone.status.code(), Some(1), "{told}");
    assert!(
        told.contains("1.2.5 was tried and undone at health: the agent ended (exit status 3)"),
        "it is judged at once: {told}"
    );
    supervisor.runs("1.2.3").await;
    assert_eq!(image.active(), "1.2.3");
    assert_eq!(supervisor.state(), Some("running".into()));
    assert!(supervisor.log().contains("the agent failed and is started again"), "the new version was tried");

    // Why, on the host and at the control plane.
    let agent = image.status()["last_failure"]["agent"].clone();
    assert_eq!(agent["ended"], "exit status 3", "{agent}");
    let lines = json!(["starting", "cannot join with --token ***"]);
    let sorted = |lines: &serde_json::Value| {
        let lines = lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
        lines.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(sorted(&agent["last_lines"]), sorted(&lines), "two pipes have no order");
    let shown = said(&image.update(&["status", "--format", "text"]));
    assert!(shown.contains("    its agent ended: exit status 3, first seen at 20"), "{shown}");
    assert!(shown.contains("    | cannot join with --token ***\n"), "{shown}");
    eventually("the control plane knows", PATIENCE, async || {
        cluster.ask(&["nodes", "ls"])[0]["updater"]["last_failure"]["agent"] == agent
    })
    .await;
    assert!(supervisor.log().contains("starting\n"), "what the agent writes is passed on");
}

/// It connects, and so tells the control plane that it runs: that alone makes no upgrade.
#[tokio::test]
async fn a_version_that_connects_and_then_dies_is_a_failure_of_the_rollout() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    let groups = json!({
        "kind": "cluster_maintenance_config",
        "spec": { "agent_auto_update_groups": { "regular": [{
            "name": "all", "start_hour": far_hour(), "window_hours": 24, "timeout_seconds": 900, "failure_seconds": 900,
        }] } },
    });
    let file = cluster.folder.path().join("groups.json");
    std::fs::write(&file, groups.to_string()).unwrap();
    cluster.ask(&["create", file.to_str().unwrap()]);
    cluster.ask(&["autoupdate", "update", "--set-agent-version=1.2.4"]);

    let deaths = Cell::new(0);
    let group = || cluster.ask(&["autoupdate", "status"])["groups"][0].clone();
    eventually("the group halts", LONG_PATIENCE, async || {
        let found = supervisor.readiness();
        let new = found.filter(|agent| agent["connected"] == true && agent["version"] == "1.2.4");
        if let Some(agent) = new {
            send(pid(&agent), Signal::KILL);
            deaths.set(deaths.get() + 1);
        }
        let group = group();
        assert_eq!(group["upgraded"], 0, "{group}");
        group["state"] == "halted"
    })
    .await;
    assert!(deaths.get() > 0, "it never ran");
    assert_eq!(group()["failed"], 1, "{}", group());
    supervisor.runs("1.2.3").await;
    let hosts = cluster.ask(&["autoupdate", "status", "--group", "all", "--hosts"]);
    assert!(hosts.to_string().contains("rolled back by its updater at health"), "{hosts}");
}

/// Configuration management runs `enable` again and again, and new hosts are made at night.
#[tokio::test]
async fn while_the_rollout_is_paused_a_new_host_gets_what_works_and_a_known_one_stays() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    supervisor.obeys(json!({"set_updates": false}));
    eventually("the whole fleet runs 1.2.3", PATIENCE, async || {
        cluster.ask(&["autoupdate", "status"])["last_good_version"] == "1.2.3"
    })
    .await;
    cluster.ask(&["autoupdate", "pause"]);
    cluster.ask(&["autoupdate", "update", "--set-agent-version=1.2.4"]);

    let enable = |image: &Image| {
        said(&image.update(&["enable", "--proxy", &cluster.address, "--ca-pin", &cluster.pin]))
    };
    let stays = enable(&image);
    assert!(stays.contains("1.2.3 stays until the cluster wants 1.2.4 on this host"), "{stays}");
    let new = Image { root: cluster.folder.path().join("new") };
    assert_eq!(enable(&new), "Installed 1.2.3.\n");
    let status = cluster.server.ctl(&["autoupdate", "status"]).good();
    assert!(
        status.contains("New hosts get: v1.2.3, the last version whose rollout ended well\n"),
        "{status}"
    );

    cluster.ask(&["autoupdate", "resume"]);
    let newer = Image { root: cluster.folder.path().join("newer") };
    assert_eq!(enable(&newer), "Installed 1.2.4.\n");
}

/// The archive does not match its checksum. The host stays in flight and tries again; it times out with that reason, and
/// arrives late when the archive has been mended.
#[tokio::test]
async fn a_host_that_cannot_download_has_not_failed_the_version() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    let artifacts = cluster.folder.path().join("server/artifacts");
    let checksum = std::fs::read_dir(&artifacts).unwrap().flatten().map(|entry| entry.path());
    let is_checksum =
        |path: &std::path::PathBuf| path.to_string_lossy().ends_with("1.2.4-linux-amd64-bin.tar.gz.sha256");
    let checksum = checksum.into_iter().find(is_checksum).unwrap();
    let good = std::fs::read_to_string(&checksum).unwrap();
    let publish = |text: &str| {
        let aside = checksum.with_extension("aside");
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(&aside, &checksum).unwrap();
    };
    publish(&format!("{}{}", "0".repeat(64), &good[64..]));
    let groups = json!({
        "kind": "cluster_maintenance_config",
        "spec": { "agent_auto_update_groups": { "regular": [{
            "name": "all", "start_hour": far_hour(), "window_hours": 24, "timeout_seconds": 30,
        }] } },
    });
    let file = cluster.folder.path().join("groups.json");
    std::fs::write(&file, groups.to_string()).unwrap();
    cluster.ask(&["create", file.to_str().unwrap()]);
    cluster.ask(&["autoupdate", "update", "--set-agent-version=1.2.4"]);

    let hosts = || cluster.ask(&["autoupdate", "status", "--group", "all", "--hosts"]);
    let is = |outcome: &str| {
        let host = hosts()[0].clone();
        assert_ne!(host["outcome"], "failed", "{host}");
        host["outcome"] == outcome
            && host["reason"].as_str().is_some_and(|reason| reason.contains("could not begin at download: "))
    };
    eventually("the obstacle is told while it is in flight", PATIENCE, async || is("in_flight")).await;
    eventually("it times out with that reason", LONG_PATIENCE, async || is("timed_out")).await;
    let group = cluster.ask(&["autoupdate", "status"])["groups"][0].clone();
    assert_eq!((&group["failed"], &group["timed_out"]), (&0.into(), &1.into()), "{group}");
    assert!(image.status()["last_failure"].is_null());

    publish(&good);
    cluster.ask(&["autoupdate", "run", "--group", "all"]);
    eventually("it upgrades", LONG_PATIENCE, async || hosts()[0]["outcome"] == "upgraded").await;
    supervisor.runs("1.2.4").await;
}

#[tokio::test]
async fn an_agent_that_is_told_of_an_upgrade_wakes_the_updater() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    let before = supervisor.runs("1.2.3").await;
    cluster.choose("1.2.4");
    let after = supervisor.runs("1.2.4").await;
    assert_eq!(pid(&after), pid(&before));
    supervisor.says("Updated from 1.2.3 to 1.2.4.").await;
    assert_eq!(image.active(), "1.2.4");
}

#[tokio::test]
async fn an_updater_runs_by_the_clock_too() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    cluster.choose("1.2.4");
    // No agent wakes it.
    std::fs::write(image.root.join("var/lib/refit/supervisor.disabled"), "").unwrap();
    let supervisor = Supervisor::start_with(&image, &["supervise", "--every", "1s", "--", "version"]);
    supervisor.says("Updated from 1.2.3 to 1.2.4.").await;
    assert_eq!(image.active(), "1.2.4");
    assert_eq!(supervisor.state(), Some("stopped".into()), "an agent that is disabled is not started");
}

#[tokio::test]
async fn what_dies_comes_back_and_what_is_told_to_end_takes_all_along() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let mut supervisor = Supervisor::start(&cluster, &image);
    let first = supervisor.runs("1.2.3").await;
    send(pid(&first), Signal::KILL);
    let second = supervisor.agent("has another id", |agent| agent["pid"] != first["pid"]).await;

    supervisor.signal(Signal::HUP);
    let third = supervisor.agent("started again", |agent| agent["started_at"] != second["started_at"]).await;
    assert_eq!(pid(&third), pid(&second), "SIGHUP is for the agent");

    supervisor.signal(Signal::KILL);
    supervisor.ends().await;
    is_gone(pid(&third)).await;
    assert!(supervisor.socket().exists());
    let alone = said(&image.update(&["update"]));
    assert_eq!(alone, "Nothing to do: 1.2.3 is active.\n", "a socket that nobody listens at is nobody's");

    let mut supervisor = Supervisor::start(&cluster, &image);
    let fourth = supervisor.runs("1.2.3").await;
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ends().await, Some(0));
    assert!(!is_alive(pid(&fourth)), "it waits for its agent");
    assert_eq!(supervisor::left_of(&image), Vec::<String>::new());
    assert!(!supervisor.socket().exists());
}

#[tokio::test]
async fn the_agent_waits_for_a_version_and_does_as_it_is_told() {
    let cluster = Cluster::start().await;
    let image = Image { root: cluster.folder.path().join("image") };
    let mut supervisor = Supervisor::start(&cluster, &image);
    supervisor.says("no version is installed yet").await;
    assert_eq!(supervisor.state(), Some("stopped".into()));
    cluster.choose("1.2.3");
    let enabled = image.update(&["enable", "--proxy", &cluster.address, "--ca-pin", &cluster.pin]);
    assert_eq!(said(&enabled), "Installed 1.2.3.\n");
    let first = supervisor.runs("1.2.3").await;

    supervisor.obeys(json!("stop"));
    assert!(!is_alive(pid(&first)), "answered when it is gone");
    assert_eq!(supervisor.state(), Some("stopped".into()));
    let reloaded = supervisor.tell(b"\"reload\"").unwrap();
    assert!(reloaded["failed"].as_str().unwrap().contains("start it"), "{reloaded}");
    supervisor.obeys(json!("stop"));
    supervisor.obeys(json!("start"));
    supervisor.runs("1.2.3").await;

    assert_eq!(supervisor.tell(b"\"is_enabled\""), Some(json!({"enabled": true})));
    supervisor.obeys(json!({"set_enabled": false}));
    supervisor.signal(Signal::INT);
    assert_eq!(supervisor.ends().await, Some(0));
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.says("the agent is disabled and waits to be started").await;
    eventually("it answers", PATIENCE, async || supervisor.state() == Some("stopped".into())).await;
    assert_eq!(supervisor.tell(b"\"is_enabled\""), Some(json!({"enabled": false})));
    supervisor.obeys(json!("start"));
    supervisor.runs("1.2.3").await;
}

#[tokio::test]
async fn there_is_one_supervisor_and_garbage_does_not_harm_it() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    let agent = supervisor.runs("1.2.3").await;
    let mut second = Supervisor::start_with(&image, &["supervise"]);
    assert_eq!(second.ends().await, Some(1));
    let data = image.root.join("var/lib/refit");
    second.says(&format!("error: another supervisor runs the agent of {}; stop it", data.display())).await;

    let silent: Vec<_> =
        (0..40).map(|_| std::os::unix::net::UnixStream::connect(supervisor.socket()).unwrap()).collect();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{\"set_updates\":", b"\xff\x00", b""] {
        let answer = supervisor.tell(garbage).unwrap();
        assert!(answer["failed"].as_str().unwrap().contains("not a request"), "{answer}");
    }
    supervisor.tell(&vec![b'['; 1 << 20]);
    assert_eq!(supervisor.state(), Some("running".into()));
    assert_eq!(said(&image.update(&["update"])), "Nothing to do: 1.2.3 is active.\n");
    assert_eq!(pid(&supervisor.runs("1.2.3").await), pid(&agent));
    drop(silent);
}

#[tokio::test]
async fn nothing_is_switched_under_a_supervisor_that_does_not_answer() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    supervisor.obeys(json!({"set_updates": false}));
    cluster.choose("1.2.4");
    supervisor.signal(Signal::STOP);
    let refused = image.update(&["update", "--now"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("supervisor.sock") && told.contains("was silent"), "{told}");
    assert_eq!(image.active(), "1.2.3");
    supervisor.signal(Signal::CONT);
    assert_eq!(said(&image.update(&["update"])), "Updated from 1.2.3 to 1.2.4.\n");
    supervisor.runs("1.2.4").await;
}

#[tokio::test]
async fn an_update_that_its_end_cut_off_is_undone_before_the_next_start() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let mut supervisor = Supervisor::start(&cluster, &image);
    let first = supervisor.runs("1.2.3").await;
    cluster.choose("1.2.6");
    image.is_tried("1.2.6").await;
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ends().await, Some(0));
    assert_eq!(supervisor::left_of(&image), Vec::<String>::new());
    assert!(image.root.join("var/lib/refit/versions/journal.json").exists(), "it was in the middle of it");

    cluster.choose("1.2.3");
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.says("Rolled back the switch to 1.2.6").await;
    assert_eq!(supervisor.runs("1.2.3").await["host_id"], first["host_id"]);
    assert_eq!(image.active(), "1.2.3");
}

#[tokio::test]
async fn an_online_recovery_brings_back_the_agent_that_ran() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    let first = supervisor.runs("1.2.3").await;
    supervisor.obeys(json!({"set_updates": false}));
    cluster.choose("1.2.6");
    let mut updater = image.command(&["update"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    image.is_tried("1.2.6").await;
    updater.kill().unwrap();
    updater.wait().unwrap();
    supervisor.obeys(json!("stop"));

    let undone = "Rolled back the switch to 1.2.6, which was interrupted.\n";
    assert_eq!(said(&image.update(&["recover", "--online"])), undone);
    let second = supervisor.runs("1.2.3").await;
    assert_eq!(second["host_id"], first["host_id"]);
    assert_eq!((image.active(), supervisor.state()), ("1.2.3".into(), Some("running".into())));
    assert_eq!(said(&image.update(&["recover", "--online"])), "", "there is nothing left to undo");
    assert_eq!(supervisor.runs("1.2.3").await["session"], second["session"], "so the agent is left alone");
}

#[tokio::test]
async fn an_agent_that_somebody_else_started_is_waited_for() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let mut supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ends().await, Some(0));

    let mut by_hand = std::process::Command::new("setpriv");
    by_hand.args(["--pdeathsig", "KILL", "--"]).arg(image.root.join("var/lib/refit/active/bin/refit"));
    by_hand.args(["agent", "start", "--data-dir"]).arg(image.root.join("var/lib/refit"));
    by_hand.arg("--config").arg(image.root.join("etc/refit.yaml"));
    let mut by_hand =
        by_hand.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    supervisor.runs("1.2.3").await;
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.says("another agent uses the data directory").await;
    let stopped = supervisor.tell(b"\"stop\"").unwrap();
    let expected = format!("(pid {})", by_hand.id());
    assert!(stopped["failed"].as_str().unwrap().contains(&expected), "{stopped}");
    supervisor.obeys(json!("start"));
    by_hand.kill().unwrap();
    by_hand.wait().unwrap();
    supervisor.agent("is its own", |agent| agent["pid"] != by_hand.id()).await;
}
