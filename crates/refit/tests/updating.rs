//! `refit-update` with a real server and real archives: installs, upgrades, holds, and survives being killed.
//! In an image, where no service manager is asked for anything.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use refit_testbed::{Process, directory, eventually, sweep};
use refit_types::DataDir;
use serde_json::Value;
use tempfile::TempDir;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane with archives of two versions.
struct Cluster {
    folder: TempDir,
    _server: Process,
    address: String,
    pin: String,
}

/// Made once: stamping and packing take longer than any test.
fn archives() -> &'static Path {
    static ARCHIVES: OnceLock<TempDir> = OnceLock::new();
    let folder = ARCHIVES.get_or_init(|| {
        let folder = directory();
        for version in ["1.2.3", "1.2.4"] {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/dist.sh");
            let made = Command::new("sh")
                .arg(script)
                .args([version, REFIT, folder.path().to_str().unwrap()])
                .env("DIST_GZIP_LEVEL", "1")
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        folder
    });
    folder.path()
}

impl Cluster {
    async fn start() -> Self {
        let folder = directory();
        let data = folder.path().join("server");
        std::fs::create_dir(&data).unwrap();
        symlink_copy(archives(), &data.join("artifacts"));
        let fixed = ["server", "--listen", "127.0.0.1:0", "--diag-listen", "127.0.0.1:0", "--data-dir"];
        let arguments = fixed.into_iter().chain([data.to_str().unwrap()]).map(str::to_owned);
        let server = Process::start(REFIT, &arguments.collect::<Vec<_>>(), &data.with_extension("log"));
        let endpoint = DataDir::new(&data).endpoint();
        eventually("the server answers", PATIENCE, async || {
            endpoint.exists() && ctl(&data, &["status"]).status.success()
        })
        .await;
        let made = ctl(&data, &["nodes", "add", "--format", "json"]);
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        let address = std::fs::read_to_string(endpoint).unwrap().trim().to_owned();
        Self { folder, _server: server, address, pin: made["ca_pin"].as_str().unwrap().into() }
    }

    fn choose(&self, version: &str) {
        let flag = format!("--set-agent-version={version}");
        let data = self.folder.path().join("server");
        let chosen = ctl(&data, &["autoupdate", "update", &flag, "--immediate"]);
        assert!(chosen.status.success(), "{chosen:?}");
    }

    /// An image with the first version in it.
    fn installed(&self) -> Image {
        self.choose("1.2.3");
        let image = Image { root: self.folder.path().join("image") };
        let enabled = image.update(&["enable", "--proxy", &self.address, "--ca-pin", &self.pin]);
        assert_eq!(said(&enabled), "Installed 1.2.3.\n");
        image
    }
}

/// Files are served from the directory itself only, so they are linked and not pointed to.
fn symlink_copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn ctl(data: &Path, arguments: &[&str]) -> Output {
    Command::new(REFIT).args(["ctl", "--data-dir"]).arg(data).args(arguments).output().unwrap()
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

struct Image {
    root: PathBuf,
}

impl Image {
    fn command(&self, arguments: &[&str]) -> Command {
        let called = self.root.with_extension("refit-update").join("refit-update");
        if !called.exists() {
            std::fs::create_dir_all(called.parent().unwrap()).unwrap();
            symlink(REFIT, &called).unwrap();
        }
        let mut command = Command::new(called);
        command.arg("--root").arg(&self.root).args(arguments).stdin(Stdio::null());
        command
    }

    fn update(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn versions(&self) -> PathBuf {
        self.root.join("var/lib/refit/versions")
    }

    /// The version that the pointer names, which is whole and runs.
    fn active(&self) -> String {
        let active = std::fs::read_link(self.root.join("var/lib/refit/active")).unwrap();
        let folder = self.root.join("var/lib/refit").join(&active);
        assert!(folder.join("sha256").exists(), "{active:?} is not complete");
        let version = active.file_name().unwrap().to_str().unwrap().to_owned();
        let runs = Command::new(folder.join("bin/refit")).arg("version").output().unwrap();
        assert_eq!(said(&runs), format!("refit v{version} (oss)\n"));
        version
    }

    fn status(&self) -> Value {
        serde_json::from_str(&said(&self.update(&["status"]))).unwrap()
    }

    fn copy(&self, name: &str) -> Image {
        let root = self.root.with_file_name(name);
        let copied = Command::new("cp").args(["-al", "--"]).arg(&self.root).arg(&root).status().unwrap();
        assert!(copied.success());
        Image { root }
    }
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
async fn what_cannot_be_had_or_trusted_changes_nothing() {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    cluster.choose("9.9.9");
    let missing = image.update(&["update"]);
    let told = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(missing.status.code(), Some(1));
    assert!(told.contains("9.9.9 was not installed, at download") && told.contains("404"), "{told}");
    assert_eq!(image.active(), "1.2.3");
    let failure = &image.status()["last_failure"];
    assert_eq!((&failure["version"], &failure["step"]), (&"9.9.9".into(), &"download".into()));

    let other = Image { root: cluster.folder.path().join("other") };
    let pin = format!("sha256:{}", "0".repeat(64));
    let refused = other.update(&["enable", "--proxy", &cluster.address, "--ca-pin", &pin]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("pin"), "{told}");
    assert!(!other.versions().join("updates.yaml").exists());

    let nowhere = other.update(&["enable"]);
    let told = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(nowhere.status.code() == Some(1) && told.contains("--proxy"), "{told}");
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
    let whole = image.copy("whole");
    let started = std::time::Instant::now();
    said(&whole.update(&["update"]));
    let takes = started.elapsed();
    let rounds = sweep(12, 300);
    for round in 0..rounds {
        let image = image.copy(&format!("image-{round}"));
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
        let image = image.copy(&format!("pair-{round}"));
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
