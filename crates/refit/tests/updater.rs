//! `refit-update` with a real server and real archives: installs, upgrades, holds, and survives being killed.
//! In an image, where no service manager is asked for anything.

#![allow(clippy::unwrap_used)]

#[path = "updater/cluster.rs"]
mod cluster;
#[path = "updater/full_disk.rs"]
mod full_disk;
#[path = "updater/interrupted_download.rs"]
mod interrupted_download;
#[path = "updater/recovery.rs"]
mod recovery;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cluster::{Cluster, Image, PATIENCE, said};
use refit_testbed::{directory, eventually, sweep};

fn versions(image: &Image) -> PathBuf {
    image.root.join("var/lib/refit/versions")
}

fn copy(image: &Image, name: &str) -> Image {
    let root = image.root.with_file_name(name);
    let copied = Command::new("cp").args(["-al", "--"]).arg(&image.root).arg(&root).status().unwrap();
    assert!(copied.success());
    Image { root }
}

#[tokio::test]
async fn an_image_gets_what_the_cluster_wants_and_keeps_it() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    assert_eq!(image.active(), "1.2.3");
    for binary in ["refit", "refitctl", "refit-update"] {
        let link = std::fs::read_link(image.root.join("usr/local/bin").join(binary)).unwrap();
        assert_eq!(link, Path::new("/var/lib/refit/active/bin").join(binary), "as it is inside");
    }
    assert_eq!(said(&image.update(&["update"])), "Nothing to do: 1.2.3 is active.\n");

    cluster.choose("1.2.4");
    assert_eq!(said(&image.update(&["update"])), "Updated from 1.2.3 to 1.2.4.\n");
    assert_eq!(image.active(), "1.2.4");
    let status = image.status();
    assert_eq!(
        (&status["agent_version_installed"], &status["agent_version_previous"]),
        (&"1.2.4".into(), &"1.2.3".into())
    );

    cluster.choose("1.2.3");
    let held = said(&image.update(&["update"]));
    assert!(held.starts_with("Held: 1.2.3 is older") && held.contains("no complete backup"), "{held}");
    assert_eq!(image.active(), "1.2.4");
    assert!(image.status()["held"].as_str().unwrap().contains("no complete backup"));

    said(&image.update(&["pin", "1.2.4"]));
    assert_eq!(said(&image.update(&["update"])), "Nothing to do: 1.2.4 is active (pinned).\n");
    said(&image.update(&["unpin"]));
    said(&image.update(&["disable"]));
    assert!(said(&image.update(&["update"])).contains("updates are disabled"));
    assert_eq!(image.status()["agent_updates_enabled"], false);
}

#[tokio::test]
async fn each_step_is_one_line_in_the_log() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let kept = versions(&image).join("1.1.0");
    std::fs::create_dir(&kept).unwrap();
    cluster.choose("1.2.4");
    let updated = image.update(&["update"]);
    said(&updated);
    let log = String::from_utf8(updated.stderr).unwrap();
    let mut lines = log.lines();
    for step in [
        format!("Asked {} what this host should run: 1.2.4, now", cluster.address),
        format!("Downloading 1.2.4 from https://{}/v1/artifacts/", cluster.address),
        format!("There is room in {}: ", versions(&image).display()),
        format!("Unpacked 1.2.4 to {}", versions(&image).join("1.2.4").display()),
        "All binaries of 1.2.4 run: ".into(),
        "Asked again: 1.2.4 is still due".into(),
        "active now leads to 1.2.4".into(),
        format!("Wrote {}", versions(&image).join("updates.yaml").display()),
        format!("Removed {}", kept.display()),
    ] {
        assert!(lines.any(|line| line.contains(&step)), "{step:?} is not in its place: {log}");
    }
    assert!(!log.contains("?host="), "{log}");
}

#[tokio::test]
async fn what_is_not_installed_is_not_uninstalled() {
    let cluster = Cluster::start().await;
    let bare = Image { root: cluster.folder.path().join("bare") };
    let none = "Nothing is installed on this host, so nothing was removed.\n";
    assert_eq!(said(&bare.update(&["uninstall"])), none);
    assert!(!bare.root.exists(), "and nothing was put there");

    let image = cluster.installed();
    let database = image.root.join("var/lib/refit/proc/sqlite.db");
    std::fs::create_dir_all(database.parent().unwrap()).unwrap();
    std::fs::write(&database, "the agent's").unwrap();
    assert!(said(&image.update(&["uninstall"])).starts_with("Removed what the updater had installed"));
    assert!(!versions(&image).exists() && image.root.join("usr/local/bin/refit").symlink_metadata().is_err());
    assert_eq!(said(&image.update(&["uninstall"])), none);
    // What runs before each start of an agent leaves its lock there.
    said(&image.update(&["recover"]));
    assert_eq!(said(&image.update(&["uninstall"])), none);
    assert!(versions(&image).join("lock").exists());
    assert_eq!(std::fs::read_to_string(&database).unwrap(), "the agent's");
}

#[tokio::test]
async fn what_cannot_be_had_or_trusted_changes_nothing() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    cluster.choose("1.9.9");
    let missing = image.update(&["update", "--now"]);
    let told = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(1));
    assert!(told.contains("1.9.9 was not installed, at download") && told.contains("404"), "{told}");
    assert_eq!(image.active(), "1.2.3");
    let status = image.status();
    let (obstacle, failure) = (&status["obstacle"], &status["last_failure"]);
    assert_eq!((&obstacle["version"], &obstacle["step"]), (&"1.9.9".into(), &"download".into()));
    assert!(failure.is_null(), "the version was never tried: {failure}");
    let text = said(&image.update(&["status", "--format", "text"]));
    assert!(text.contains("could not begin at download") && text.contains("next try at"), "{text}");

    // The command of the timer tries again by itself, and asks each time what is due.
    let trying = image.command(&["update"]).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it is tried again", PATIENCE, async || {
        image.status()["obstacle"]["tries"].as_u64().is_some_and(|tries| tries >= 3)
    })
    .await;
    cluster.choose("1.2.4");
    assert_eq!(said(&trying.wait_with_output().unwrap()), "Updated from 1.2.3 to 1.2.4.\n");
    assert!(image.status()["obstacle"].is_null());

    let other = Image { root: cluster.folder.path().join("other") };
    let pin = format!("sha256:{}", "0".repeat(64));
    let refused = other.update(&["enable", "--proxy", &cluster.address, "--ca-pin", &pin]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("pin"), "{told}");
    assert!(!versions(&other).join("updates.yaml").exists());

    let nowhere = other.update(&["enable"]);
    let told = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(nowhere.status.code() == Some(1) && told.contains("--proxy"), "{told}");
}

#[test]
fn a_profile_that_cannot_be_used_is_wrong_use() {
    let folder = directory();
    let image = Image { root: folder.path().join("image") };
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/teleport.yaml");
    let good = std::fs::read_to_string(shipped).unwrap();
    let path = folder.path().join("mine.yaml");
    let cases = [
        (None, "No such file"),
        (Some("name: [".to_owned()), "line"),
        (
            Some(good.replace("data_dir: /var/lib/teleport", "data_dir: lib")),
            "data_dir: lib is not an absolute",
        ),
        (Some(good.replace("config: /etc/teleport.yaml", "config: [1]")), "config: "),
        (Some(good.replace("package:", "packages:")), "packages"),
    ];
    for (text, named) in cases {
        if let Some(text) = text {
            assert_ne!(text, good, "{named}");
            std::fs::write(&path, text).unwrap();
        }
        for command in ["status", "update", "recover", "uninstall", "supervise"] {
            let refused = image.update(&["--profile", path.to_str().unwrap(), command]);
            let told = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(2), "{command}: {told}");
            let begin = format!("error: the profile {} cannot be used: ", path.display());
            assert!(told.starts_with(&begin) && told[begin.len()..].contains(named), "{named}: {told}");
        }
    }
    assert!(!image.root.exists());
    std::fs::write(&path, good).unwrap();
    said(&image.update(&["--profile", path.to_str().unwrap(), "status"]));
}

fn kill_after(mut child: Child, delay: Duration) {
    std::thread::sleep(delay);
    let _ = child.kill();
    let _ = child.wait();
}

/// The delay is the point of this test, not a wait: each kill is at another moment of an update.
#[tokio::test]
async fn killed_at_any_moment_it_ends_where_it_would_have() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    cluster.choose("1.2.4");
    let whole = copy(&image, "whole");
    let started = std::time::Instant::now();
    said(&whole.update(&["update"]));
    let takes = started.elapsed();
    let rounds = sweep(12, 300);
    for round in 0..rounds {
        let image = copy(&image, &format!("image-{round}"));
        let child = image.command(&["update"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        kill_after(child, takes.mul_f64(round as f64 / rounds as f64));
        said(&image.update(&["recover"]));
        assert!(["1.2.3", "1.2.4"].contains(&image.active().as_str()));
        said(&image.update(&["update"]));
        assert_eq!(image.active(), "1.2.4", "round {round}");
        std::fs::remove_dir_all(&image.root).unwrap();
    }
    println!("{rounds} kills over {takes:?}, none lost");
}

#[tokio::test]
async fn two_updaters_never_work_side_by_side() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    cluster.choose("1.2.4");
    for round in 0..sweep(4, 100) {
        let image = copy(&image, &format!("pair-{round}"));
        let quiet =
            || image.command(&["update"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let outputs = [quiet(), quiet()].map(|child| child.wait_with_output().unwrap());
        let told: Vec<String> = outputs
            .iter()
            .map(|output| {
                String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
            })
            .collect();
        let count = |text: &str| told.iter().filter(|told| told.contains(text)).count();
        assert_eq!(count("Updated from 1.2.3 to 1.2.4"), 1, "{told:?}");
        assert_eq!(
            count("Another updater is at work") + count("Nothing to do: 1.2.4 is active"),
            1,
            "{told:?}"
        );
        assert_eq!(image.active(), "1.2.4");
        std::fs::remove_dir_all(&image.root).unwrap();
    }
}

#[tokio::test]
async fn enable_waits_until_the_cluster_wants_the_version_here() {
    let cluster = Cluster::start().await;
    cluster.choose("1.2.3");
    cluster.ask(&["autoupdate", "pause"]);
    let image = Image { root: cluster.folder.path().join("image") };
    let enable = |more: &[&str]| {
        image.update(&[&["enable", "--proxy", &cluster.address, "--ca-pin", &cluster.pin], more].concat())
    };
    let refused = enable(&[]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("the rollout of 1.2.3 is paused, and the control plane has no version"), "{told}");
    assert!(!image.root.join("var/lib/refit/active").exists());
    said(&enable(&["--now"]));
    assert_eq!(image.active(), "1.2.3");

    // The agent has joined: what configuration management runs again changes nothing before the host's turn.
    std::fs::write(image.root.join("var/lib/refit/host_uuid"), "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55\n")
        .unwrap();
    cluster.ask(&["autoupdate", "resume"]);
    let closed = format!("--set-start-hour={}", refit_testbed::far_hour());
    cluster.ask(&["autoupdate", "update", "--schedule", "regular", &closed, "--set-window-hours=1"]);
    cluster.ask(&["autoupdate", "update", "--set-agent-version=1.2.4"]);
    let kept = said(&enable(&[]));
    assert!(kept.contains("1.2.3 stays until the cluster wants 1.2.4 on this host"), "{kept}");
    assert_eq!(image.active(), "1.2.3");
    said(&enable(&["--now"]));
    assert_eq!(image.active(), "1.2.4");
}
