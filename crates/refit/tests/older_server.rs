//! The present agent and the present `refitctl` with a server of 0.1: hosts are upgraded before servers now and then,
//! and administrators have what they have. The server is a present one behind a proxy that drops, in both directions,
//! what 0.1 does not know.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use refit_backend::{EtcdAddress, EtcdBackend};
use refit_released::OldServer;
use refit_testbed::{
    Etcd, Invitation, Process, Ran, Server, directory, eventually, far_hour, publish, until_seen,
};
use refit_types::DataDir;
use serde_json::{Value, json};
use tempfile::TempDir;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
const TIMEOUT: Duration = Duration::from_secs(120);
/// Forward to a new authority, and back from another one.
const PHASES: [&str; 7] =
    ["init", "update_clients", "update_servers", "standby", "init", "rollback", "standby"];
/// What an agent says once for each phase that it has carried out.
const FOLLOWED: &str = "followed the rotation of the authorities";

struct Cluster {
    server: Server,
    old: OldServer,
    folder: TempDir,
}

struct Agent {
    data: DataDir,
    _process: Process,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        let folder = directory();
        let url = format!("etcd://{}/older-{}-{name}", Etcd::shared().await.endpoint(), std::process::id());
        publish(&folder.path().join("server/artifacts"), &["99.0.0"]);
        let server = Server::start(REFIT, &folder.path().join("server"), &["--backend", &url]).await;
        let backend = EtcdBackend::connect(&EtcdAddress::parse(&url).unwrap()).await.unwrap();
        let old = OldServer::start(server.address(), Arc::new(backend)).await;
        Self { server, old, folder }
    }

    /// Runs `refitctl` as the administrator, with the server of 0.1.
    fn ctl(&self, arguments: &[&str]) -> Ran {
        let address = self.old.address();
        self.server.ctl(&[&["--server", &address, "--format", "json"], arguments].concat())
    }

    /// What the server of 0.1 answers, which must be what the present one does.
    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> Value {
        let (old, new) = (self.ctl(arguments).json(), self.server.ask(arguments));
        assert_eq!(stable_part(old.clone()), stable_part(new), "{arguments:?}");
        old
    }

    fn create(&self, document: &Value) {
        let file = self.folder.path().join("document.yaml");
        std::fs::write(&file, document.to_string()).unwrap();
        self.ctl(&["create", "--force", file.to_str().unwrap()]).good();
    }

    fn configure(&self, enabled: bool, groups: &[Value]) {
        let groups = json!({ "regular": groups });
        let spec = json!({ "agent_auto_update": enabled, "agent_auto_update_groups": groups });
        self.create(&json!({ "kind": "cluster_maintenance_config", "spec": spec }));
    }

    fn choose(&self, version: &str) {
        let spec = json!({ "agent_version": version, "agent_version_schedule": "regular" });
        self.create(&json!({ "kind": "autoupdate_version", "spec": spec }));
    }

    /// An agent that joins the server of 0.1, on a host with an updater.
    fn agent(&self) -> Agent {
        let root: PathBuf = self.folder.path().join("agent");
        let data = DataDir::new(root.clone());
        std::fs::create_dir_all(data.updater_status().parent().unwrap()).unwrap();
        std::fs::write(data.updater_status(), json!({ "agent_updates_enabled": true }).to_string()).unwrap();
        let Invitation { token, ca_pin } = self.server.invite(&["--roles", "node,kube"]);
        let (root, proxy) = (root.to_str().unwrap(), self.old.address());
        let arguments = [
            ["agent", "start"],
            ["--data-dir", root],
            ["--proxy", &proxy],
            ["--roles", "node,kube"],
            ["--labels", "environment=staging"],
            ["--token", &token],
            ["--ca-pin", &ca_pin],
        ];
        let arguments: Vec<String> = arguments.concat().into_iter().map(str::to_owned).collect();
        let process = Process::start(REFIT, &arguments, &data.root().with_extension("log"));
        Agent { data, _process: process }
    }

    /// Waits until the group stands there, moving or blocked with words that begin so.
    async fn until(&self, name: &str, state: &str, waiting: &str) {
        let group = async || self.ctl(&["autoupdate", "status", "--group", name]).json();
        let is_there = |group: &Value| {
            let told = group["waiting"].as_str().unwrap_or_default();
            group["state"] == state && told.starts_with(waiting) && told.is_empty() == waiting.is_empty()
        };
        until_seen(&format!("{name} is {state}, {waiting:?}"), TIMEOUT, group, is_there).await;
    }
}

impl Agent {
    fn log(&self) -> String {
        std::fs::read_to_string(self.data.root().with_extension("log")).unwrap()
    }
}

/// An answer without what is different at every moment.
fn stable_part(mut answer: Value) -> Value {
    match &mut answer {
        Value::Object(fields) => {
            // 0.1 does not tell which host a group halted for.
            fields.remove("failure");
            for (name, value) in fields.iter_mut() {
                let cut =
                    |text: &str| text.split(|letter: char| letter.is_ascii_digit()).next().map(Value::from);
                *value = match (name.as_str(), value.as_str()) {
                    // The proxy has an identity of its own for each caller.
                    ("last_seen" | "store_revision" | "caller", _) => Value::Null,
                    // Such a sentence counts the seconds; what a group halted by stays.
                    ("waiting", Some(text)) if !text.starts_with("halted") => cut(text).unwrap(),
                    _ => stable_part(value.take()),
                };
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = stable_part(value.take())),
        _ => {}
    }
    answer
}

fn group(name: &str, is_open: bool, fields: Value) -> Value {
    let mut group = json!({
        "name": name,
        "agents": { "instance_labels_expression": r#"labels["environment"] == "staging""# },
        "start_hour": far_hour(),
        "window_hours": if is_open { 24 } else { 1 },
    });
    for (name, value) in fields.as_object().unwrap() {
        group[name] = value.clone();
    }
    group
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_follows_every_phase_of_a_server_of_0_1() {
    let cluster = Cluster::start("rotation").await;
    let agent = cluster.agent();
    let nodes = || cluster.ctl(&["nodes", "ls"]).json();
    let is_at = |phase: &'static str| {
        move |nodes: &Value| nodes[0]["connected"] == true && nodes[0]["rotation_phase"] == phase
    };
    until_seen("the agent joins", TIMEOUT, async || nodes(), is_at("standby")).await;
    assert_eq!(cluster.ask(&["nodes", "ls"])[0]["roles"], json!(["node", "kube"]));

    for (n, phase) in PHASES.into_iter().enumerate() {
        let moved = cluster.ctl(&["auth", "rotate", "--phase", phase]).json();
        assert_eq!((&moved["phase"], &moved["mode"]), (&json!(phase), &json!("manual")));
        let hosts_follow = async || cluster.ctl(&["auth", "rotate", "status"]).json();
        until_seen(phase, TIMEOUT, hosts_follow, |rotation| rotation["lagging"] == json!([])).await;
        until_seen(phase, TIMEOUT, async || nodes(), is_at(phase)).await;
        assert_eq!(cluster.ask(&["auth", "rotate", "status"])["phase"], phase);
        assert_eq!(cluster.ask(&["status"])["rotation_phase"], phase);
        // It follows once, and does not take the same phase for another one because a field is missing.
        let followed = agent.log().matches(FOLLOWED).count();
        assert_eq!(followed, n + 1, "{}", agent.log());
    }
    assert!(cluster.old.dropped() > 0, "the proxy has not dropped anything");
    let refused = cluster.ctl(&["auth", "rotate", "--phase", "revoke"]).bad(2);
    assert!(refused.contains("revoke"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_and_rollouts_of_a_server_of_0_1_are_read_as_ever() {
    let cluster = Cluster::start("rollout").await;
    let agent = cluster.agent();
    let joined = async || cluster.ctl(&["nodes", "ls"]).json()[0]["version"].is_string();
    eventually("the agent joins", TIMEOUT, joined).await;
    let later = |name: &str, is_open: bool, fields: Value| {
        let mut group = group(name, is_open, fields);
        group["agents"]["instance_labels_expression"] = r#"labels["environment"] == "nowhere""#.into();
        group
    };
    let groups = [
        group("canary", true, json!({ "timeout_seconds": 900, "failure_seconds": 900 })),
        later("closed", false, json!({})),
        later("behind", true, json!({ "requires": ["canary"] })),
    ];
    cluster.configure(true, &groups);
    cluster.choose("99.0.0");
    cluster.until("canary", "active", "").await;
    // 0.1 does not know this reason, and tells it in the words that it was sent.
    cluster.until("closed", "scheduled", "blocked: selects no hosts").await;
    cluster.until("behind", "scheduled", "waiting for canary").await;

    let hosts = ["autoupdate", "status", "--group", "canary", "--hosts"];
    let woken = |hosts: &Value| {
        hosts[0]["outcome"] == "in_flight"
            && hosts[0]["reason"].as_str().is_some_and(|reason| reason.contains("has woken its updater"))
    };
    until_seen("the updater is woken", TIMEOUT, async || cluster.ctl(&hosts).json(), woken).await;
    assert_eq!(std::fs::read_to_string(agent.data.updater_wake()).unwrap(), "attempt 1\n");
    let of = |outcome: &str| cluster.ask(&[&hosts[..], &["--outcome", outcome]].concat());
    assert_eq!(of("in_flight").as_array().unwrap().len(), 1);
    assert_eq!(of("failed"), json!([]));
    assert!(cluster.ctl(&[&hosts[..], &["--outcome", "lucky"]].concat()).bad(2).contains("lucky"));

    // The updater goes back: the group halts.
    let failure = json!({
        "attempt": 1, "version": "99.0.0", "step": "health", "reason": "no answer", "at": "2026-01-01T00:00:00Z",
    });
    let status = json!({ "agent_updates_enabled": true, "failures": 1, "last_failure": failure });
    std::fs::write(agent.data.updater_status(), status.to_string()).unwrap();
    cluster.until("canary", "halted", "halted: 1 of 1 failed, limit 0%").await;
    assert_eq!(of("failed")[0]["outcome"], "failed");
    let all = cluster.ask(&["autoupdate", "status"]);
    assert_eq!((&all["schedule"], &all["groups"][0]["state"]), (&json!("regular"), &json!("halted")));
    assert_eq!(cluster.ask(&["status"])["rollout"]["halted"], json!(["canary"]));

    cluster.ctl(&["autoupdate", "pause", "--group", "closed"]).good();
    cluster.until("closed", "scheduled", "paused ").await;
    cluster.ctl(&["autoupdate", "pause"]).good();
    cluster.until("closed", "scheduled", "the rollout was paused ").await;
    cluster.ask(&["autoupdate", "status"]);
    cluster.ctl(&["autoupdate", "resume"]).good();
    cluster.ctl(&["autoupdate", "run", "--group", "canary"]).good();
    cluster.until("canary", "active", "").await;
    cluster.configure(false, &groups);
    cluster.until("closed", "scheduled", "automatic updates are disabled").await;
    cluster.ask(&["autoupdate", "status"]);
    let tokens = cluster.ask(&["tokens", "ls"]);
    assert_eq!(tokens[0]["roles"], json!(["node", "kube"]));
    assert!(cluster.old.dropped() > 0, "the proxy has not dropped anything");
}
