//! What `refitctl` warns of, and what it stores only if that is typed: groups that select no host, and immediate versions
//! during a pause.

use refit_loadgen::SimulatedFleet;

use crate::edit::edit;
use crate::host::{Host, Ran, ServerProcess};
use crate::watch::fleet_options;

/// Hosts of the cluster, which have no labels.
const HOSTS: usize = 40;
const WARNING: &str = "warning: staging selects none of 40 hosts\n";

const CONFIG: &str = r#"kind: cluster_maintenance_config
spec:
  agent_auto_update_groups:
    regular:
    - name: staging
      agents:
        node_labels_expression: labels["environment"] == "staging"
      max_in_flight: 20%
    - name: rest
"#;

fn version(schedule: &str) -> String {
    format!(
        "kind: autoupdate_version\nspec:\n  agent_version: 15.1.1\n  agent_version_schedule: {schedule}\n"
    )
}

/// A cluster with hosts that have reported.
struct Cluster {
    host: Host,
    _server: ServerProcess,
    _fleet: SimulatedFleet,
}

async fn cluster() -> Cluster {
    let host = Host::new();
    let server = host.serve();
    let options = fleet_options(&host, &server, HOSTS, "15.1.0");
    let joined = SimulatedFleet::join(&options).await.unwrap();
    let fleet = SimulatedFleet::connect(&options, &joined).await.unwrap();
    Cluster { host, _server: server, _fleet: fleet }
}

/// It was stored, and what was warned of.
#[track_caller]
fn warned(ran: Ran, warning: &str) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stderr, warning, "{ran:?}");
    assert!(!ran.stdout.contains("warning"), "a warning is no part of the answer: {ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_selects_no_host_is_warned_of() {
    let cluster = cluster().await;
    let host = &cluster.host;
    warned(host.ctl_with_input(&["create", "-"], CONFIG), WARNING);
    warned(host.ctl_with_input(&["create", "--force", "--format", "json", "-"], CONFIG), WARNING);
    let kind = "cluster_maintenance_config";
    warned(edit(host, &[kind], "sed -i s/20%/30%/ \"$1\""), WARNING);

    host.ctl_with_input(&["create", "--allow-missing", "-"], &version("regular")).good();
    let shown = host.ctl(&["autoupdate", "plan"]).good();
    assert!(shown.contains("! staging: selects none of 40 hosts\n"), "{shown}");
    assert!(!shown.contains("! rest: selects none"), "{shown}");
    let proposed = host.write("proposed.yaml", &format!("{CONFIG}---\n{}", version("regular")));
    let fleet =
        host.write("fleet.yaml", "hosts:\n- {count: 400, labels: {environment: x}, version: 15.1.0}\n");
    let files = [proposed, fleet].map(|file| file.display().to_string());
    let shown = host.refitctl(&["autoupdate", "plan", "--file", &files[0], "--fleet", &files[1]]).good();
    assert!(shown.contains("! staging: selects none of 400 hosts\n"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_may_be_empty_is_not_warned_of() {
    let cluster = cluster().await;
    let host = &cluster.host;
    warned(host.ctl_with_input(&["create", "-"], CONFIG), WARNING);
    let set = |value: &str| {
        let option = format!("--set-allow-empty={value}");
        host.ctl(&["autoupdate", "update", "--schedule", "regular", "--group", "staging", &option])
    };
    let stored = || host.ctl(&["get", "cluster_maintenance_config", "--format", "json"]).json();
    let is_set = || {
        let stored = stored();
        let document = stored.get(0).unwrap_or(&stored);
        document["spec"]["agent_auto_update_groups"]["regular"][0]["allow_empty"] == true
    };
    let done = "Automatic updates configuration has been updated.\n";
    assert_eq!(set("true").good(), done);
    assert!(is_set(), "{}", stored());
    assert_eq!(set("false").good(), format!("{done}{WARNING}"));
    assert!(!is_set(), "{}", stored());
    let refused = set("perhaps").bad(2);
    assert!(refused.contains("--set-allow-empty"), "{refused}");
    let refused = host.ctl(&["autoupdate", "update", "--set-allow-empty=true"]).bad(2);
    assert!(refused.contains("--group"), "{refused}");
}

#[test]
fn an_immediate_version_during_a_pause_must_be_meant() {
    let host = Host::new();
    let _server = host.serve();
    host.ctl_with_input(&["create", "--allow-missing", "-"], &version("regular")).good();
    host.ctl(&["autoupdate", "pause"]).good();
    let update = |more: &[&str]| {
        let fixed = ["autoupdate", "update", "--set-agent-version=15.1.2", "--immediate", "--allow-missing"];
        host.ctl(&[&fixed[..], more].concat())
    };
    let create = |more: &[&str]| {
        let fixed = ["create", "--force", "--allow-missing"];
        host.ctl_with_input(&[&fixed[..], more, &["-"]].concat(), &version("immediate"))
    };
    let change = |more: &[&str]| {
        edit(&host, &[&["autoupdate_version"], more].concat(), "sed -i s/regular/immediate/ \"$1\"")
    };
    let schedule = || host.ctl(&["autoupdate", "status", "--format", "json"]).json()["schedule"].clone();
    for refused in [update(&[]), create(&[]), change(&[])] {
        let told = refused.bad(1);
        for word in ["has been paused since", "`refitctl autoupdate resume` first", "--even-if-paused"] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert_eq!(schedule(), "regular");
    }
    let meant = ["--even-if-paused"];
    for stores in [&update as &dyn Fn(&[&str]) -> Ran, &create, &change] {
        stores(&meant).good();
        assert_eq!(schedule(), "immediate");
        host.ctl_with_input(&["create", "--force", "--allow-missing", "-"], &version("regular")).good();
    }
    let status = host.ctl(&["autoupdate", "status", "--format", "json"]).json();
    assert!(status["paused_at"].is_string(), "{status}");
}
