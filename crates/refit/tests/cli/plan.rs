//! `autoupdate plan` and `simulate`: from files alone without a server, and completed from a cluster.

use crate::host::Host;

const CONFIG: &str = r#"kind: cluster_maintenance_config
spec:
  agent_auto_update_groups:
    regular:
    - name: staging
      agents:
        node_labels_expression: labels["environment"] == "staging"
      start_hour: 2
      max_in_flight: 20%
    - name: production
      agents:
        node_labels_expression: labels["environment"] == "production"
      start_hour: 3
      timezone: Europe/Berlin
      max_in_flight: 10%
      requires: [staging]
"#;

const VERSION: &str =
    "kind: autoupdate_version\nspec:\n  agent_version: 15.1.1\n  agent_version_schedule: regular\n";

const FLEET: &str = r#"hosts:
- {count: 50, labels: {environment: staging}, version: 15.1.0}
- {count: 200, labels: {environment: production}, version: 15.1.0}
- {count: 4, version: 15.1.0}
"#;

fn host() -> Host {
    let host = Host::new();
    host.write("proposed.yaml", &format!("{CONFIG}---\n{VERSION}"));
    host.write("fleet.yaml", FLEET);
    host
}

fn arguments<'a>(command: &'a str, files: &'a [String; 2], more: &[&'a str]) -> Vec<&'a str> {
    let fixed =
        ["autoupdate", command, "--file", &files[0], "--fleet", &files[1], "--start", "2026-03-02T00:00Z"];
    [&fixed[..], more].concat()
}

fn files(host: &Host) -> [String; 2] {
    ["proposed.yaml", "fleet.yaml"].map(|name| host.path(name).display().to_string())
}

#[test]
fn a_plan_needs_no_server_when_files_say_everything() {
    let host = host();
    let files = files(&host);
    let shown = host.refitctl(&arguments("plan", &files, &[])).good();
    assert!(shown.starts_with("Version 15.1.1, schedule regular, as of 2026-03-02 00:00 UTC\n"), "{shown}");
    assert!(shown.contains("Mon 2026-03-02 03:05  Europe/Berlin  2026-03-02 02:05"), "{shown}");
    assert!(shown.contains("hosts[2] has no label \"environment\""), "{shown}");
    let json = host.refitctl(&arguments("plan", &files, &["--format", "json"])).json();
    assert_eq!(json["groups"][1]["limit"], 20);
    assert_eq!(json["groups"][1]["requires"][0], "staging");
    assert_eq!(json["ungrouped"], 4);
}

#[test]
fn a_simulation_is_told_and_drawn() {
    let host = host();
    let files = files(&host);
    let drawing = host.path("out.svg").display().to_string();
    let shown = host.refitctl(&arguments("simulate", &files, &["--svg", &drawing, "--days", "7"])).good();
    assert!(shown.contains("254 hosts: 250 upgraded, 4 not started"), "{shown}");
    assert!(shown.contains("No limit of hosts in flight would be passed."), "{shown}");
    assert!(std::fs::read_to_string(&drawing).unwrap().starts_with("<svg "));
    let bad = arguments("simulate", &files, &["--fail", "100%", "--format", "json"]);
    let json = host.refitctl(&bad).json();
    assert!(json["groups"][0]["state"]["halted"].is_object(), "{json}");
    assert_eq!(
        (&json["groups"][1]["opened"], &json["limit_passed"]),
        (&serde_json::Value::Null, &false.into())
    );
    assert_eq!(json, host.refitctl(&bad).json(), "a simulation can be repeated");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_its_place() {
    let host = host();
    let files = files(&host);
    for (more, told) in [
        (["--fail", "60%", "--die", "50%"], "more than all"),
        (["--seconds", "60-20", "--seed", "1"], "cannot take 60-20 seconds"),
        (["--days", "400", "--seed", "1"], "400 is not in 1..=366"),
        (["--fail", "lots", "--seed", "1"], "is not a share"),
    ] {
        let ran = host.refitctl(&arguments("simulate", &files, &more));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
    host.write("fleet.yaml", "hosts:\n- {count: many, version: 15.1.0}\n- {versoin: 15.1.0}\n");
    let ran = host.refitctl(&arguments("simulate", &files, &[]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for told in [
        "hosts[0].count: expected 1 to 10000000, found \"many\"",
        "hosts[1].version: is missing",
        "hosts[1].versoin: is not a known field",
    ] {
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
    host.write("proposed.yaml", "kind: autoupdate_version\nspec: {agent_version: newest}\n");
    let ran = host.refitctl(&arguments("plan", &files, &[]));
    assert!(ran.stderr.contains("spec.agent_version: \"newest\" is not a version"), "{ran:?}");
}

#[test]
fn what_files_do_not_say_is_asked_of_the_cluster() {
    let host = host();
    let files = files(&host);
    let lost = host.ctl(&["autoupdate", "plan"]);
    assert!(lost.stderr.contains("there is no control plane on this host"), "{lost:?}");
    let _server = host.serve();
    let none = host.ctl(&["autoupdate", "plan"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stderr.contains("there is no autoupdate_version"), "{none:?}");
    host.ctl(&["create", "--allow-missing", &files[0]]).good();
    let shown = host.ctl(&["autoupdate", "plan", "--fleet", &files[1]]).good();
    assert!(shown.contains("production"), "{shown}");
    let empty = host.ctl(&["autoupdate", "simulate", "--format", "json"]).json();
    assert_eq!((&empty["hosts"], &empty["finished"]), (&0.into(), &false.into()), "nobody runs the version");
}

#[test]
fn a_plan_knows_what_operators_stopped() {
    let host = host();
    let files = files(&host);
    let _server = host.serve();
    host.ctl(&["create", "--allow-missing", &files[0]]).good();
    let plan = |more: &[&str]| {
        let fixed = ["autoupdate", "plan", "--fleet", &files[1]];
        host.ctl(&[&fixed[..], more].concat()).good()
    };
    assert!(plan(&[]).contains(" at the earliest, if every host takes 60 s"), "{}", plan(&[]));
    host.ctl(&["autoupdate", "pause", "--group", "production"]).good();
    let shown = plan(&[]);
    assert!(shown.contains("! production: paused ") && shown.contains("ago: nothing is started"), "{shown}");
    assert!(shown.ends_with("It does not end by itself.\n"), "{shown}");
    host.ctl(&["autoupdate", "resume", "--group", "production"]).good();
    host.ctl(&["autoupdate", "pause"]).good();
    // A pause outlasts a version, so it holds for one that is only proposed, too.
    host.write("other.yaml", "kind: autoupdate_version\nspec:\n  agent_version: 15.2.0\n");
    let other = host.path("other.yaml").display().to_string();
    for shown in [plan(&[]), plan(&["--file", &other])] {
        assert!(
            shown.contains("! the rollout was paused ") && shown.contains("ago: nothing is started"),
            "{shown}"
        );
        assert!(shown.ends_with("It does not end by itself.\n"), "{shown}");
    }
    let nowhere = host.refitctl(&arguments("plan", &files, &[])).good();
    assert!(!nowhere.contains("paused"), "files say everything, and no cluster is asked: {nowhere}");
}
