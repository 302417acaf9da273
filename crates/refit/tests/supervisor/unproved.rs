//! Updates that begin or run where no supervisor listens: none of them commits a version without proof.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::Instant;

use refit_testbed::{Signal, eventually};

use crate::LONG_PATIENCE;
use crate::cluster::{Cluster, Image, PATIENCE, said};
use crate::supervisor::{Supervisor, send};

fn data(image: &Image) -> PathBuf {
    image.root.join("var/lib/refit")
}

/// An image whose agent has joined and does not run.
async fn joined(cluster: &Cluster) -> Image {
    let image = cluster.installed();
    let mut supervisor = Supervisor::start(cluster, &image);
    supervisor.runs("1.2.3").await;
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.ends().await, Some(0));
    image
}

/// Begins an update and halts it when the version is on the disk and nothing is switched yet.
fn begin_update(image: &Image, version: &str) -> Child {
    let mut command = image.command(&["update", "--now"]);
    let updater = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (complete, end) =
        (data(image).join("versions").join(version).join("sha256"), Instant::now() + PATIENCE);
    while !complete.exists() {
        assert!(Instant::now() < end, "{version} was not installed");
    }
    send(i64::from(updater.id()), Signal::STOP);
    assert!(!data(image).join("versions/journal.json").exists(), "it was too late");
    updater
}

fn finish(updater: Child) -> (Output, String) {
    send(i64::from(updater.id()), Signal::CONT);
    let output = updater.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, told)
}

#[tokio::test]
async fn an_update_that_begins_before_the_supervisor_is_proved_or_undone() {
    let cluster = Cluster::start().await;
    let image = joined(&cluster).await;
    for (version, ends_on) in [("1.2.5", "1.2.3"), ("1.2.4", "1.2.4")] {
        cluster.choose(version);
        let updater = begin_update(&image, version);
        let mut supervisor = Supervisor::start(&cluster, &image);
        supervisor.runs("1.2.3").await;
        let (output, told) = finish(updater);
        assert_eq!(output.status.success(), version == ends_on, "{told}");
        if version != ends_on {
            assert!(told.contains("1.2.5 was tried and undone at health"), "{told}");
        }
        supervisor.runs(ends_on).await;
        assert_eq!(image.active(), ends_on);
        assert_eq!(data(&image).join("versions").join(version).join("proved").exists(), version == ends_on);
        assert!(!data(&image).join("versions").join(version).join("unproved").exists());
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.ends().await, Some(0));
    }
}

#[tokio::test]
async fn a_version_that_was_installed_without_a_supervisor_is_proved_at_the_next_start_or_undone() {
    let cluster = Cluster::start().await;
    let image = joined(&cluster).await;
    for (version, ends_on) in [("1.2.5", "1.2.3"), ("1.2.4", "1.2.4")] {
        cluster.choose(version);
        let updated = image.update(&["update", "--now"]);
        assert_eq!(said(&updated), format!("Updated from 1.2.3 to {version}.\n"));
        let told = String::from_utf8_lossy(&updated.stderr).into_owned();
        assert!(told.contains(&format!("{version} is proved at its next start, or undone")), "{told}");
        assert_eq!(image.status()["unproved"], true);
        let shown = said(&image.update(&["status", "--format", "text"]));
        assert!(shown.contains("its agent has not run since it was installed"), "{shown}");
        assert!(!data(&image).join("supervisor.lock").exists(), "an image is left without a lock");

        let mut supervisor = Supervisor::start(&cluster, &image);
        let settled = async || image.status()["unproved"].is_null();
        eventually("the version is proved or undone", LONG_PATIENCE, settled).await;
        supervisor.runs(ends_on).await;
        assert_eq!(image.active(), ends_on);
        assert!(fs::symlink_metadata(data(&image).join("active.back")).is_err());
        let failure = &image.status()["last_failure"];
        match version == ends_on {
            true => assert!(failure.is_null(), "{failure}"),
            false => assert_eq!((&failure["version"], &failure["step"]), (&version.into(), &"health".into())),
        }
        supervisor.signal(Signal::TERM);
        assert_eq!(supervisor.ends().await, Some(0));
    }
}

/// The lock is what both take: who has it knows whether there is a supervisor.
#[tokio::test]
async fn supervisor_and_switch_exclude_each_other() {
    let cluster = Cluster::start().await;
    let image = joined(&cluster).await;
    let path = data(&image).join("supervisor.lock");
    let switching = File::create(&path).unwrap();
    switching.lock().unwrap();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.says("waiting for an updater that is switching versions").await;
    assert!(supervisor.readiness().is_none() && !supervisor.socket().exists(), "no agent runs yet");

    // A supervisor that has its lock and does not listen may have an agent.
    cluster.choose("1.2.4");
    let refused = image.update(&["update", "--now"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("supervisor.lock and does not listen"), "{told}");
    assert_eq!(image.active(), "1.2.3");

    drop(switching);
    supervisor.runs("1.2.3").await;
}

#[tokio::test]
async fn nothing_is_switched_under_an_agent_that_nothing_supervises() {
    let cluster = Cluster::start().await;
    let image = joined(&cluster).await;
    let mut by_hand = std::process::Command::new("setpriv");
    by_hand.args(["--pdeathsig", "KILL", "--"]).arg(data(&image).join("active/bin/refit"));
    by_hand.args(["agent", "start", "--data-dir"]).arg(data(&image));
    by_hand.arg("--config").arg(image.root.join("etc/refit.yaml"));
    let mut by_hand =
        by_hand.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the agent runs", PATIENCE, async || data(&image).join("agent.sock").exists()).await;
    cluster.choose("1.2.4");
    let refused = image.update(&["update", "--now"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("an agent (process {}) runs", by_hand.id())), "{told}");
    assert_eq!(image.active(), "1.2.3");
    by_hand.kill().unwrap();
    by_hand.wait().unwrap();
    assert_eq!(said(&image.update(&["update", "--now"])), "Updated from 1.2.3 to 1.2.4.\n");
}
