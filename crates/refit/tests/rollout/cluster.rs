//! Three servers as processes, each with its own way to one etcd, and a simulated fleet.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_loadgen::{Conduct, FleetOptions, FollowingHost, HostOptions, SimulatedFleet, Witness};
use refit_testbed::{Etcd, Process, Proxy, directory, eventually};
use refit_types::DataDir;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Each group's share of the fleet in percent, and how much of it may be in flight.
const GROUPS: [(&str, usize, u32); 2] = [("staging-group", 20, 10), ("prod-group", 80, 20)];

const CONFIG: &str = r#"
kind: cluster_maintenance_config
spec:
  agent_auto_update_groups:
    regular:
    - name: staging-group
      agents: { instance_labels_expression: 'labels["environment"] == "staging"' }
      window_hours: 24
      max_in_flight: 10%
      timeout_seconds: 45
      max_failed_before_halt: 20%
      max_timeout_before_halt: 20%
    - name: prod-group
      agents: { instance_labels_expression: 'labels["environment"] == "prod"' }
      window_hours: 24
      max_in_flight: 20%
      timeout_seconds: 45
      max_failed_before_halt: 20%
      max_timeout_before_halt: 20%
      requires: [staging-group]
"#;

pub struct Cluster {
    _folder: TempDir,
    _etcd: Etcd,
    servers: Vec<Server>,
    _fleet: JoinSet<()>,
    witnesses: Vec<Arc<Witness>>,
    members: Vec<usize>,
}

struct Server {
    process: Option<Process>,
    data: PathBuf,
    store: Proxy,
    address: String,
}

impl Server {
    async fn start(data: PathBuf, etcd: &Etcd) -> Self {
        let store = Proxy::to(etcd.endpoint()).await;
        let url = format!("etcd://{}/rollout", store.endpoint());
        let fixed = ["server", "--diag-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--backend", &url];
        let fixed = fixed.into_iter().chain(["--data-dir", data.to_str().unwrap()]);
        let arguments: Vec<String> = fixed.map(str::to_owned).collect();
        let process = Process::start(REFIT, &arguments, &data.with_extension("log"));
        let mut server = Self { process: Some(process), data, store, address: String::new() };
        let endpoint = DataDir::new(&server.data).endpoint();
        let answers = async || endpoint.exists() && server.try_ctl(&["status"]).is_some();
        eventually("the server answers", PATIENCE, answers).await;
        server.address = std::fs::read_to_string(endpoint).unwrap().trim().to_owned();
        server
    }

    fn try_ctl(&self, arguments: &[&str]) -> Option<Value> {
        let output = Command::new("timeout")
            .args(["--signal=KILL", "30", REFIT, "ctl", "--format", "json", "--data-dir"])
            .arg(&self.data)
            .args(arguments)
            .output()
            .unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn ctl(&self, arguments: &[&str]) -> Value {
        self.try_ctl(arguments).unwrap_or_else(|| panic!("{arguments:?} failed"))
    }
}

impl Cluster {
    /// Three servers, and hosts that are connected to them in turn.
    pub async fn start(name: &str, hosts: usize, conduct: impl Fn(usize) -> Conduct) -> Self {
        let (folder, etcd) = (directory(), Etcd::start().await);
        let mut servers = Vec::new();
        for n in 0..3 {
            servers.push(Server::start(folder.path().join(format!("{name}-{n}")), &etcd).await);
        }
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, CONFIG).unwrap();
        servers[0].ctl(&["create", file.to_str().unwrap()]);
        let invitation = servers[0].ctl(&["nodes", "add", "--ttl", "2h"]);
        let text = |name: &str| invitation[name].as_str().unwrap().to_owned();
        let options = FleetOptions {
            proxy: servers[0].address.clone(),
            token: text("token"),
            ca_pin: text("ca_pin").parse().unwrap(),
            agents: hosts,
            at_once: 64,
            labels: 0,
            version: "15.1.0".into(),
        };
        let joined = SimulatedFleet::join(&options).await.unwrap();
        let witnesses: Vec<Arc<Witness>> = GROUPS.iter().map(|_| Arc::default()).collect();
        let (mut fleet, mut members) = (JoinSet::new(), vec![0; GROUPS.len()]);
        for (n, joined) in joined.into_iter().enumerate() {
            let group = usize::from(n % 100 >= GROUPS[0].1 && n % 5 != 3);
            members[group] += 1;
            let environment = ["staging", "prod"][group];
            let options = HostOptions {
                servers: servers.iter().map(|server| server.address.clone()).collect(),
                first: n % servers.len(),
                labels: HashMap::from([("environment".into(), environment.into())]),
                version: "15.1.0".into(),
                conduct: conduct(n),
                takes: Duration::from_millis(500 + (n as u64 * 37) % 1500),
                // Some are not woken, and ask by themselves. Those that hang have to be known to hang.
                asks_every: (n % 3 == 0 && conduct(n) == Conduct::Upgrades).then_some(Duration::from_secs(2)),
                beats_every: Duration::from_secs(3),
            };
            let witness = witnesses[group].clone();
            fleet.spawn(FollowingHost::new(joined, options, witness).live());
        }
        let cluster = Self { _folder: folder, _etcd: etcd, servers, _fleet: fleet, witnesses, members };
        eventually("every host reports", PATIENCE, async || {
            let nodes = cluster.servers[0].ctl(&["nodes", "ls"]);
            let good = |node: &&Value| node["connected"] == true && node["version"] == "15.1.0";
            nodes.as_array().unwrap().iter().filter(good).count() == hosts
        })
        .await;
        cluster
    }

    pub fn choose(&self, version: &str) {
        let flag = format!("--set-agent-version={version}");
        self.servers[0].ctl(&["autoupdate", "update", &flag]);
    }

    /// How many have arrived, seen from outside.
    pub fn arrived(&self) -> usize {
        self.witnesses.iter().map(|witness| witness.arrived() as usize).sum()
    }

    pub fn cut_off(&self, server: usize) {
        self.servers[server].store.set_blocked(true);
    }

    pub fn heal(&self, server: usize) {
        self.servers[server].store.set_blocked(false);
    }

    pub fn kill(&mut self, server: usize) {
        self.servers[server].process = None;
    }

    fn limit(&self, group: usize) -> u32 {
        (self.members[group] as u32 * GROUPS[group].2).div_ceil(100)
    }

    /// The limits hold, by what is stored and by what is seen from outside.
    fn assert_limits(&self, rollout: &Value) {
        for (n, group) in rollout["groups"].as_array().unwrap().iter().enumerate() {
            let limit = self.limit(n);
            assert!(group["in_flight"].as_u64().unwrap() <= limit.into(), "{group}");
            let (seen, peak) = (self.witnesses[n].flying(), self.witnesses[n].peak());
            assert!(peak <= limit, "{}: {seen} and at most {peak} at once, limit {limit}", GROUPS[n].0);
        }
        let staging_done = rollout["groups"][0]["state"] == "succeeded";
        assert!(staging_done || self.witnesses[1].began() == 0, "prod began before staging succeeded");
    }

    /// Watches until every group has succeeded.
    pub async fn until_done(&self) {
        let started = Instant::now();
        eventually("every group succeeds", PATIENCE, async || {
            let rollout = self.servers[0].ctl(&["autoupdate", "status"]);
            self.assert_limits(&rollout);
            let groups = rollout["groups"].as_array().unwrap();
            groups.len() == GROUPS.len() && groups.iter().all(|group| group["state"] == "succeeded")
        })
        .await;
        for (n, (name, ..)) in GROUPS.iter().enumerate() {
            let (peak, limit) = (self.witnesses[n].peak(), self.limit(n));
            println!(
                "{name}: {} hosts, at most {peak} at once seen from outside, limit {limit}",
                self.members[n]
            );
        }
        println!("all groups succeeded in {:.0} s", started.elapsed().as_secs_f64());
    }

    /// Each outcome was counted exactly.
    pub fn assert_outcomes(&self, conduct: impl Fn(usize) -> Conduct) {
        let total: usize = self.members.iter().sum();
        let expected =
            |wanted: &[Conduct]| (0..total).filter(|n| wanted.contains(&conduct(*n))).count() as u64;
        let rollout = self.servers[0].ctl(&["autoupdate", "status"]);
        let sum = |field: &str| -> u64 {
            rollout["groups"].as_array().unwrap().iter().map(|group| group[field].as_u64().unwrap()).sum()
        };
        assert_eq!(sum("upgraded"), expected(&[Conduct::Upgrades]), "{rollout:#}");
        assert_eq!(sum("failed"), expected(&[Conduct::RollsBack, Conduct::Dies]), "{rollout:#}");
        assert_eq!(sum("members"), total as u64);
        assert_eq!(sum("timed_out"), total as u64 - sum("upgraded") - sum("failed"), "{rollout:#}");
    }

    /// Nobody was lost on the way, whatever the servers went through.
    pub fn assert_everyone_ended(&self) {
        let rollout = self.servers[0].ctl(&["autoupdate", "status"]);
        for group in rollout["groups"].as_array().unwrap() {
            let count = |field: &str| group[field].as_u64().unwrap();
            assert_eq!(
                count("members"),
                count("upgraded") + count("failed") + count("timed_out"),
                "{group:#}"
            );
            assert!(count("upgraded") * 100 >= count("members") * 90, "{group:#}");
        }
        for server in &self.servers[..2] {
            let log = std::fs::read_to_string(server.data.with_extension("log")).unwrap();
            assert!(!log.contains("panicked"), "{log}");
        }
    }

    /// What the rollout stored for each upgraded host, heartbeats not counted.
    pub async fn assert_writes(&self, most: f64) {
        let mut written: HashMap<String, f64> = HashMap::new();
        for server in &self.servers {
            let log = std::fs::read_to_string(server.data.with_extension("log")).unwrap();
            let diag = log.lines().find_map(|line| line.split("http://").nth(1)?.strip_suffix("/readyz"));
            let metrics = metrics(diag.unwrap_or_else(|| panic!("{log}")));
            for line in metrics.lines().filter(|line| line.starts_with("refit_rollout_writes_total")) {
                let what = line.split('"').nth(1).unwrap().to_owned();
                *written.entry(what).or_default() += line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            }
        }
        let upgraded = self.arrived() as f64;
        // A host that did not make it is written three times: marked, started and ended.
        let others = self.members.iter().sum::<usize>() as f64 - upgraded;
        let marks = (written["mark"] - 3.0 * others) / upgraded;
        let groups = written["group"] / upgraded;
        println!(
            "writes for each of {upgraded} upgraded hosts: {:.2} ({marks:.2} of hosts, {groups:.2} of groups), and {:.2} \
             with its heartbeat; {others} others, three each",
            marks + groups,
            written["arrival"] / upgraded
        );
        if upgraded >= 1000.0 {
            assert!(marks + groups <= most, "{written:?}");
        }
    }
}

fn metrics(address: &str) -> String {
    let output = Command::new("curl").args(["-sf", &format!("http://{address}/metrics")]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
