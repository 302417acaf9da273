//! The etcd processes of a test end with it, even if the test is killed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use refit_testbed::{Etcd, eventually};

/// Set in the process that is to be killed.
const HOLD: &str = "REFIT_TESTBED_HOLD";
const WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_etcd_is_gone_with_its_test() {
    let etcd = Etcd::start().await;
    let pid = etcd.pid();
    assert!(is_running(pid));
    drop(etcd);
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_shared_etcd_is_gone_when_the_tests_are_killed() {
    if std::env::var_os(HOLD).is_some() {
        return hold_a_shared_etcd().await;
    }
    let this = std::env::current_exe().unwrap();
    let mut tests = Command::new(this)
        .args(["--exact", "a_shared_etcd_is_gone_when_the_tests_are_killed", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(tests.stdout.take().unwrap());
    let mut lines = output.lines().map_while(Result::ok);
    let pid = lines.find_map(|line| line.split_once("etcd has pid ")?.1.parse().ok()).unwrap();
    assert!(is_running(pid));
    tests.kill().unwrap();
    tests.wait().unwrap();
    eventually("the end of etcd", WITHIN, || async { !is_running(pid) }).await;
}

/// What the test above does as the process that it kills.
async fn hold_a_shared_etcd() {
    // The thread that starts it does not last.
    let started = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Etcd::shared()).pid()
    });
    let pid = started.join().unwrap();
    assert!(is_running(pid), "it ended with the thread that asked for it");
    println!("etcd has pid {pid}");
    std::future::pending().await
}

fn is_running(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
