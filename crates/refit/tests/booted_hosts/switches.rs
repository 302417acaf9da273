//! Switches that go well.

use crate::host::Host;

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_host_is_enabled_upgraded_by_a_signal_and_left_alone_when_disabled() {
    let host = Host::fresh().await;
    assert!(host.enable().good().ends_with("Installed 1.2.3.\n"));
    assert_eq!(host.active(), "1.2.3");
    host.start_agent().await;
    assert_eq!(host.runs(), "1.2.3");
    assert_eq!(host.update(&["update"]).good(), "Nothing to do: 1.2.3 is active.\n");
    let node = host.cluster.knows(host.machine.name(), "the host", |node| node["connected"] == true).await;
    assert_eq!(node["version"], "1.2.3");

    let (pid, before) = (host.shows("MainPID"), host.readiness().unwrap());
    host.goes_to("1.2.4");
    let after = host.readiness().unwrap();
    assert_eq!(host.shows("MainPID"), pid, "it was told by a signal");
    assert_eq!((host.shows("NRestarts"), host.shows("ActiveState")), ("0".into(), "active".into()));
    assert!(after["started_at"].as_str().unwrap() > before["started_at"].as_str().unwrap());
    assert_eq!((&after["host_id"], &after["connected"]), (&before["host_id"], &true.into()));
    let reported = |node: &serde_json::Value| {
        node["version"] == "1.2.4" && node["updater"]["agent_version_installed"] == "1.2.4"
    };
    let node = host.cluster.knows(host.machine.name(), "the upgrade", reported).await;
    assert_eq!(node["updater"]["agent_version_previous"], "1.2.3");
    assert!(node["updater"]["last_failure"].is_null());

    host.update(&["disable"]).good();
    host.cluster.choose("1.2.5");
    let said = host.update(&["update"]).good();
    assert!(said.contains("disabled"), "{said}");
    assert_eq!((host.active(), host.runs(), host.shows("MainPID")), ("1.2.4".into(), "1.2.4".into(), pid));
    assert_eq!(host.status()["agent_updates_enabled"], false);
    assert!(!host.machine.path("/var/lib/refit/versions/1.2.5").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_gets_its_own_database_back() {
    let host = Host::enabled().await;
    host.mark("first, of 1.2.3");
    host.goes_to("1.2.4");
    host.mark("of 1.2.4");
    let (old, new) = (vec!["first, of 1.2.3"], vec!["first, of 1.2.3", "of 1.2.4"]);
    assert_eq!(host.marks(), new, "an upgrade goes on with what is there");

    host.goes_to("1.2.3");
    assert_eq!(host.marks(), old, "a downgrade goes back to what was left");
    assert_eq!(host.shows("NRestarts"), "0");
    host.mark("second, of 1.2.3");
    host.goes_to("1.2.4");
    assert_eq!(host.marks(), new, "and so does the way forward to a version that was left");
    host.goes_to("1.2.5");
    assert_eq!(host.marks(), new);
    host.connects().await;

    host.cluster.choose("1.2.3");
    let said = host.update(&["update"]).good();
    assert!(said.contains("Held: 1.2.3 is older") && said.contains("no complete backup"), "{said}");
    assert_eq!(
        (host.active(), host.runs(), host.marks()),
        ("1.2.5".into(), "1.2.5".into(), new.iter().map(ToString::to_string).collect())
    );
    assert!(host.status()["held"].as_str().unwrap().contains("no complete backup"));
}
