//! Switches to versions that do not work.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use tokio::runtime::Runtime;

use crate::archives::{self, EXITS, HANGS, POSES};
use crate::cluster::PATIENCE;
use crate::host::Host;
use crate::relay::OUTSIDE;

/// Each takes as long as the updater waits for an agent: side by side, because none of them does anything then.
#[test]
fn a_version_that_does_not_work_is_undone_and_reported() {
    let cases = [
        (EXITS, "the agent ended (exit status 7)"),
        (HANGS, "no agent answers"),
        (POSES, "the agent that answers is 1.2.3"),
    ];
    std::thread::scope(|scope| {
        for (version, reason) in cases {
            scope.spawn(move || Runtime::new().unwrap().block_on(is_undone(version, reason)));
        }
    });
}

async fn is_undone(version: &str, reason: &str) {
    let host = Host::enabled().await;
    host.mark("before");
    let pid = host.shows("MainPID");

    // One of them with two updaters on the host, of which only the active one is to try it.
    let updater = if version == EXITS { OUTSIDE } else { "/usr/local/bin/refit-update" };
    if updater == OUTSIDE {
        host.record_updater("1.2.3");
    }
    host.cluster.choose(version);
    let undone = std::thread::scope(|scope| {
        let update = scope.spawn(|| host.run(&[updater, "update"]));
        let end = Instant::now() + PATIENCE;
        // One that ends is judged at once: it may be over before anybody has seen it.
        while version != EXITS && !(host.has_journal() && host.points_to() == version) {
            assert!(Instant::now() < end && !update.is_finished(), "it is not tried");
        }
        if version != EXITS {
            host.mark("by a version that does not work");
        }
        update.join().unwrap()
    });
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.stderr.contains(&format!("{version} was tried and undone at health")), "{undone:?}");
    assert!(undone.stderr.contains(reason), "{undone:?}");
    if updater == OUTSIDE {
        // The unit asks it too, before each start.
        let tried = host.recorded().into_iter().filter(|asked| asked != "1.2.3 recover");
        assert_eq!(tried.collect::<Vec<_>>(), ["1.2.3 update"]);
        assert!(!undone.stderr.contains("an older one does the job"), "{undone:?}");
    }
    assert_eq!((host.active(), host.runs()), ("1.2.3".into(), "1.2.3".into()));
    assert_eq!(host.marks(), ["before"], "its database has nothing of the version that does not work");
    assert_ne!(host.shows("MainPID"), pid, "its database was replaced while it did not run");
    assert!(!host.has_journal());
    host.connects().await;

    let failure = host.status()["last_failure"].clone();
    assert_eq!((&failure["version"], &failure["step"]), (&version.into(), &"health".into()));
    assert!(failure["reason"].as_str().unwrap().contains(reason), "{failure}");
    let log = std::fs::read_to_string(host.machine.path("/var/lib/refit/versions/failure.log")).unwrap();
    assert!(log.contains(&format!("version: {version}\n")) && log.contains(reason), "{log}");
    if version == EXITS {
        let agent = &failure["agent"];
        assert_eq!(agent["ended"], "exit status 7", "{failure}");
        assert!(agent["seen_dead_at"].is_string(), "{failure}");
        let line = "cannot join with --token ***";
        assert!(agent["last_lines"].as_array().unwrap().contains(&line.into()), "{failure}");
        let shown = host.update(&["status", "--format", "text"]).good();
        assert!(shown.contains("its agent ended: exit status 7") && shown.contains(line), "{shown}");
        assert!(log.contains(line), "{log}");
    }
    let name = host.machine.name();
    let node =
        host.cluster.knows(name, "the failure", |node| node["updater"]["last_failure"] == failure).await;
    assert_eq!(node["version"], "1.2.3");

    let again = host.update(&["update"]).good();
    assert!(again.contains(&format!("{version} failed at health")), "it is not tried again at once: {again}");
    host.goes_to("1.2.4");
    assert_eq!(host.marks(), ["before"]);
    assert!(host.status()["last_failure"].is_null());
    assert!(!host.machine.path("/var/lib/refit/versions/failure.log").exists());
}

/// A version that worked once, and does not any more: the way back to it begins with a stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_to_what_hangs_is_undone() {
    let host = Host::enabled().await;
    host.mark("of 1.2.3");
    host.goes_to("1.2.4");
    host.mark("of 1.2.4");
    let agent = host.machine.path("/var/lib/refit/versions/1.2.3/bin/refit");
    std::fs::rename(&agent, agent.with_file_name("moved")).unwrap();
    std::fs::write(&agent, archives::script("1.2.3", archives::HANGING)).unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();

    host.cluster.choose("1.2.3");
    let undone = host.update(&["update"]);
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
    assert_eq!(host.marks(), ["of 1.2.3", "of 1.2.4"]);
    assert_eq!(host.status()["last_failure"]["version"], "1.2.3");
}
