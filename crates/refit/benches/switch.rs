//! How long an agent is away when it is upgraded: from the move of the pointer to the new version's readiness, against
//! starting the same agent by hand.
//!
//! `cargo bench -p refit --bench switch`; with `REFIT_BENCH_STRICT=1` a missed bound is a failure.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "../tests/updater/cluster.rs"]
mod cluster;
#[path = "../tests/supervisor/supervisor.rs"]
mod supervisor;

use std::os::unix::fs::MetadataExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use cluster::{Cluster, Image, said};
use refit_testbed::Signal;
use serde_json::json;
use supervisor::{Supervisor, send};

/// Of each side in turn; the medians count.
const ROUNDS: usize = 9;
const MOST: f64 = 1.3;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Fine enough for what takes tens of milliseconds.
const LOOK_EVERY: Duration = Duration::from_micros(500);

#[tokio::main]
async fn main() -> ExitCode {
    let cluster = Cluster::start().await;
    let image = cluster.installed();
    let supervisor = Supervisor::start(&cluster, &image);
    supervisor.runs("1.2.3").await;
    supervisor.obeys(json!({"set_updates": false}));
    let (mut switched, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        cluster.choose("1.2.4");
        switched.push(upgrade(&supervisor, &image).await);
        supervisor.obeys(json!("stop"));
        by_hand.push(start_by_hand(&supervisor, &image).await);
        supervisor.obeys(json!("start"));
        supervisor.runs("1.2.4").await;
        cluster.choose("1.2.3");
        said(&image.update(&["update", "--now"]));
        supervisor.runs("1.2.3").await;
    }
    let (switched, by_hand) = (median(switched), median(by_hand));
    let ratio = switched.as_secs_f64() / by_hand.as_secs_f64();
    println!(
        "from pointer to ready {:.1} ms, started by hand {:.1} ms: {ratio:.2}x (wanted: at most {MOST}x)",
        switched.as_secs_f64() * 1e3,
        by_hand.as_secs_f64() * 1e3
    );
    let is_strict = std::env::var_os("REFIT_BENCH_STRICT").is_some();
    if is_strict && ratio > MOST { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn data(image: &Image) -> std::path::PathBuf {
    image.root.join("var/lib/refit")
}

/// Since the pointer was made that took the place of the old one.
async fn upgrade(supervisor: &Supervisor, image: &Image) -> Duration {
    let mut child =
        image.command(&["update", "--now"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ready = ready(supervisor, "1.2.4", None).await;
    let pointer = std::fs::symlink_metadata(data(image).join("active")).unwrap();
    let nanos = u32::try_from(pointer.mtime_nsec()).unwrap();
    let moved = SystemTime::UNIX_EPOCH + Duration::new(u64::try_from(pointer.mtime()).unwrap(), nanos);
    assert!(child.wait().unwrap().success());
    ready.duration_since(moved).unwrap()
}

async fn start_by_hand(supervisor: &Supervisor, image: &Image) -> Duration {
    let data = data(image);
    let began = SystemTime::now();
    let mut child = Command::new(data.join("active/bin/refit"))
        .args(["agent", "start"])
        .env("REFIT_DATA_DIR", &data)
        .env("REFIT_CONFIG", image.root.join("etc/refit.yaml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let took = ready(supervisor, "1.2.4", Some(child.id())).await.duration_since(began).unwrap();
    send(child.id().into(), Signal::TERM);
    assert!(child.wait().unwrap().success());
    took
}

/// When an agent of that version first said that it is connected.
async fn ready(supervisor: &Supervisor, version: &str, pid: Option<u32>) -> SystemTime {
    let end = SystemTime::now() + TIMEOUT;
    loop {
        let is_ready = supervisor.readiness().is_some_and(|agent| {
            agent["connected"] == true
                && agent["version"] == version
                && pid.is_none_or(|pid| agent["pid"] == pid)
        });
        let now = SystemTime::now();
        if is_ready {
            return now;
        }
        assert!(now < end, "no agent of {version} is ready");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
