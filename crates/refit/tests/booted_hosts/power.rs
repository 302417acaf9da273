//! Power and network that go away.

use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use refit_testbed::eventually;

use crate::archives::{DEAD, EXITS};
use crate::cluster::PATIENCE;
use crate::host::Host;

const DATABASE: &str = "/var/lib/refit/proc/sqlite.db";

/// The moment of the cut is looked for without a pause: some last for a few milliseconds.
fn cut_when(host: &mut Host, version: &str, moment: impl Fn(&Host) -> bool) {
    on_the_way(host, version, moment);
    host.machine.cut_power();
}

/// Begins a switch and comes back in the middle of it.
fn on_the_way(host: &Host, version: &str, moment: impl Fn(&Host) -> bool) {
    host.cluster.choose(version);
    host.run(&["systemd-run", "--collect", "--unit=cut", "/usr/local/bin/refit-update", "update"]).good();
    let end = Instant::now() + PATIENCE;
    while !moment(host) {
        assert!(Instant::now() < end, "the moment for the cut did not come");
    }
}

/// After a cut on the way between two versions: without a network, one of them runs with what belongs to it; with
/// one, the host ends where it was to go.
async fn is_settled(host: &mut Host, from: (&str, &[&str]), to: (&str, &[&str])) {
    host.cluster.network.set_blocked(true);
    host.machine.boot();
    let active = host.active();
    let (_, marks) = [from, to].into_iter().find(|(version, _)| *version == active).unwrap();
    assert_eq!(host.runs(), active);
    assert_eq!(host.marks(), marks, "the database of {active}");
    assert!(!host.has_journal());
    assert_eq!(host.readiness().unwrap()["connected"], false, "it did not need a network for that");
    assert_eq!((host.shows("ActiveState"), host.shows("NRestarts")), ("active".into(), "0".into()));

    host.cluster.network.set_blocked(false);
    host.connects().await;
    host.update(&["update"]).good();
    assert_eq!((host.active(), host.runs()), (to.0.into(), to.0.into()));
    assert_eq!(host.marks(), to.1, "the database of {}", to.0);
    assert!(host.status()["last_failure"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_in_the_middle_of_a_switch_leaves_a_version_with_its_own_database() {
    let mut host = Host::enabled().await;
    host.mark("of 1.2.3");
    let old = ("1.2.3", &["of 1.2.3"][..]);

    cut_when(&mut host, "1.2.4", Host::has_journal);
    is_settled(&mut host, old, ("1.2.4", old.1)).await;
    host.mark("of 1.2.4");
    let new = ("1.2.4", &["of 1.2.3", "of 1.2.4"][..]);

    let inode = |host: &Host| std::fs::metadata(host.machine.path(DATABASE)).map(|file| file.ino()).ok();
    let before = inode(&host);
    cut_when(&mut host, "1.2.3", |host| inode(host) != before);
    is_settled(&mut host, new, old).await;

    cut_when(&mut host, "1.2.4", |host| host.points_to() == "1.2.4");
    is_settled(&mut host, old, new).await;

    on_the_way(&host, "1.2.3", |host| {
        host.readiness().is_some_and(|readiness| readiness["version"] == "1.2.3")
    });
    host.machine.shut_down();
    is_settled(&mut host, new, old).await;

    // What cannot work is active when the power goes, and no longer wanted when it is back.
    cut_when(&mut host, EXITS, |host| host.points_to() == EXITS && host.readiness().is_none());
    host.cluster.choose("1.2.4");
    is_settled(&mut host, old, new).await;
}

/// Its updater is as broken as its agent, and it is what all links lead to when the power goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_is_settled_whatever_the_version_on_the_way_can_do() {
    let mut host = Host::enabled().await;
    host.mark("of 1.2.3");
    cut_when(&mut host, DEAD, |host| host.points_to() == DEAD);
    host.machine.boot();
    let runs = async || host.readiness().is_some_and(|readiness| readiness["version"] == "1.2.3");
    eventually("the version before runs", PATIENCE, runs).await;
    assert_eq!((host.active(), host.marks()), ("1.2.3".into(), vec!["of 1.2.3".into()]));
    assert!(!host.has_journal());
    host.goes_to("1.2.4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_network_runs_and_blames_no_version() {
    let mut host = Host::enabled().await;
    host.goes_to("1.2.4");
    host.cluster.network.set_blocked(true);
    host.machine.shut_down();
    host.machine.boot();
    assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
    assert_eq!(host.readiness().unwrap()["connected"], false);
    host.cluster.choose("1.2.5");
    let asked = host.update(&["update"]);
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.stderr.contains("the control plane cannot be asked"), "{asked:?}");
    assert!(host.status()["last_failure"].is_null());
    assert_eq!((host.runs(), host.shows("NRestarts")), ("1.2.4".into(), "0".into()));

    host.cluster.network.set_blocked(false);
    host.connects().await;
    host.goes_to("1.2.5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_goes_in_the_middle_of_a_switch_makes_no_version_look_broken() {
    let host = Host::enabled().await;
    host.cluster.choose("1.2.4");
    host.run(&[
        "systemd-run",
        "--unit=switch",
        "--remain-after-exit",
        "/usr/local/bin/refit-update",
        "update",
    ])
    .good();
    eventually("a switch", PATIENCE, async || host.has_journal()).await;
    host.cluster.network.set_blocked(true);
    let ended = async || host.machine.show("switch.service", "SubState") != "running";
    eventually("the end of the switch", 3 * PATIENCE, ended).await;
    assert_eq!(host.machine.show("switch.service", "Result"), "success", "{}", host.machine.journal());
    assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
    assert!(host.status()["last_failure"].is_null());
    host.cluster.network.set_blocked(false);
    host.connects().await;
}
