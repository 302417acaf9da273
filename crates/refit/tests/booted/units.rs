//! The units, as systemd sees them.

use refit_testbed::eventually;

use crate::cluster::PATIENCE;
use crate::host::Host;

#[tokio::test(flavor = "multi_thread")]
async fn an_enabled_agent_starts_with_its_host() {
    let mut host = Host::enabled().await;
    assert_eq!(host.run(&["systemctl", "is-enabled", "refit"]).stdout.trim(), "enabled");
    host.machine.shut_down();
    host.machine.boot();
    assert_eq!((host.shows("ActiveState"), host.runs()), ("active".into(), "1.2.3".into()));
    assert_eq!(host.run(&["systemctl", "is-enabled", "refit"]).stdout.trim(), "enabled");
    host.connects().await;
}

/// What `systemctl enable` writes down must lead to the version that is active, not to the one that was.
#[tokio::test(flavor = "multi_thread")]
async fn it_starts_with_its_host_after_the_version_that_it_was_enabled_with_is_gone() {
    let mut host = Host::enabled().await;
    host.goes_to("1.2.4");
    host.goes_to("1.2.5");
    assert!(!host.machine.path("/var/lib/refit/versions/1.2.3").exists());
    host.machine.shut_down();
    host.machine.boot();
    assert_eq!(host.run(&["systemctl", "is-enabled", "refit"]).stdout.trim(), "enabled");
    assert_eq!(host.shows("ActiveState"), "active", "{}", host.run(&["systemctl", "status", "refit"]).stdout);
    assert_eq!(host.runs(), "1.2.5");
}

/// The agent's hint: an update that nobody on the host asked for.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_hears_of_an_upgrade_wakes_the_updater() {
    let host = Host::enabled().await;
    std::fs::remove_dir_all(host.machine.path("/etc/systemd/system/refit-update.path.d")).unwrap();
    let units = "cp --no-clobber /root/refit/etc/systemd/refit-update.* /usr/local/lib/systemd/system/";
    host.run(&["sh", "-c", units]).good();
    host.run(&["systemctl", "daemon-reload"]).good();
    host.run(&["systemctl", "restart", "refit-update.path"]).good();
    let pid = host.shows("MainPID");
    host.cluster.choose("1.2.4");
    let upgraded = async || host.readiness().is_some_and(|readiness| readiness["version"] == "1.2.4");
    eventually("the upgrade", PATIENCE, upgraded).await;
    eventually("the end of the updater", PATIENCE, async || {
        host.machine.show("refit-update.service", "ActiveState") == "inactive"
    })
    .await;
    assert_eq!(host.machine.show("refit-update.service", "Result"), "success");
    assert_eq!((host.active(), host.shows("MainPID")), ("1.2.4".into(), pid));
}
