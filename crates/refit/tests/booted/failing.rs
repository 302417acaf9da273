//! Switches to versions that do not work.

use crate::archives::{EXITS, HANGS, POSES};
use crate::host::Host;

/// Each takes as long as the updater waits for an agent: side by side, because none of them does anything then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_version_that_does_not_work_is_undone_and_reported() {
    let exits = tokio::spawn(is_undone(EXITS, "no agent answers"));
    let hangs = tokio::spawn(is_undone(HANGS, "no agent answers"));
    let poses = tokio::spawn(is_undone(POSES, "the agent that answers is 1.2.3"));
    for case in [exits, hangs, poses] {
        case.await.unwrap();
    }
}

async fn is_undone(version: &str, reason: &str) {
    let host = Host::enabled().await;
    host.mark("of 1.2.3");
    host.goes_to("1.2.4");
    host.mark("of 1.2.4");
    let pid = host.shows("MainPID");

    host.cluster.choose(version);
    let undone = host.update(&["update"]);
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.stderr.contains(&format!("{version} was tried and undone at health")), "{undone:?}");
    assert!(undone.stderr.contains(reason), "{undone:?}");
    assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
    assert_eq!(host.marks(), ["of 1.2.3", "of 1.2.4"]);
    assert_ne!(host.shows("MainPID"), pid, "its database was replaced while it did not run");
    assert!(!host.has_journal());
    host.connects().await;

    let failure = host.status()["last_failure"].clone();
    assert_eq!((&failure["version"], &failure["step"]), (&version.into(), &"health".into()));
    assert!(failure["reason"].as_str().unwrap().contains(reason), "{failure}");
    let name = host.machine.name();
    let node =
        host.cluster.knows(name, "the failure", |node| node["updater"]["last_failure"] == failure).await;
    assert_eq!(node["version"], "1.2.4");

    let again = host.update(&["update"]).good();
    assert!(again.contains(&format!("{version} failed at health")), "it is not tried again at once: {again}");
    host.goes_to("1.2.5");
    assert_eq!(host.marks(), ["of 1.2.3", "of 1.2.4"]);
    assert!(host.status()["last_failure"].is_null());
}
