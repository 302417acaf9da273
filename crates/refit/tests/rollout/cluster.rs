//! Three servers as processes, each with its own way to one etcd, and a simulated fleet.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_loadgen::{Conduct, FleetOptions, HostOptions, SimulatedFleet, SimulatedHost, UpdateObserver};
use refit_testbed::{Etcd, Proxy, Server, directory, eventually, far_hour, until_seen};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub const TIMEOUT: Duration = Duration::from_secs(240);

/// Each group's share of the fleet in percent, and how much of it may be in flight.
const GROUPS: [(&str, usize, u32); 2] = [("staging-group", 20, 10), ("prod-group", 80, 20)];

fn config() -> Value {
    let group = |name: &str, environment: &str, at_once: &str, requires: &[&str]| {
        json!({
            "name": name,
            "agents": { "instance_labels_expression": format!("labels[\"environment\"] == {environment:?}") },
            "start_hour": far_hour(),
            "window_hours": 24,
            "max_in_flight": at_once,
            "timeout_seconds": 45,
            "max_failed_before_halt": "20%",
            "max_timeout_before_halt": "20%",
            "requires": requires,
        })
    };
    json!({
        "kind": "cluster_maintenance_config",
        "spec": { "agent_auto_update_groups": { "regular": [
            group("staging-group", "staging", "10%", &[]),
            group("prod-group", "prod", "20%", &["staging-group"]),
        ] } },
    })
}

/// What a host does when it is told to update.
pub struct Habits {
    pub conduct: Conduct,
    pub takes: Duration,
    pub confirms: bool,
    pub asks_every: Option<Duration>,
}

pub struct Cluster {
    _folder: TempDir,
    _etcd: Etcd,
    servers: Vec<Server>,
    /// Each server's own way to the store.
    stores: Vec<Proxy>,
    _fleet: JoinSet<()>,
    observers: Vec<Arc<UpdateObserver>>,
    members: Vec<usize>,
}

impl Cluster {
    /// Three servers, and hosts that are connected to them in turn.
    pub async fn start(name: &str, hosts: usize, conduct: impl Fn(usize) -> Conduct) -> Self {
        Self::start_with(name, hosts, |n| Habits {
            conduct: conduct(n),
            takes: Duration::from_millis(500 + (n as u64 * 37) % 1500),
            confirms: false,
            // Some are not woken, and ask by themselves. Those that hang have to be known to hang.
            asks_every: (n % 3 == 0 && conduct(n) == Conduct::Upgrades).then_some(Duration::from_secs(2)),
        })
        .await
    }

    /// The same, with hosts of other habits.
    pub async fn start_with(name: &str, hosts: usize, habits: impl Fn(usize) -> Habits) -> Self {
        let (folder, etcd) = (directory(), Etcd::start().await);
        let (mut servers, mut stores) = (Vec::new(), Vec::new());
        for n in 0..3 {
            let store = Proxy::to(etcd.endpoint()).await;
            let url = format!("etcd://{}/rollout", store.endpoint());
            let data = folder.path().join(format!("{name}-{n}"));
            servers.push(Server::start(env!("CARGO_BIN_EXE_refit"), &data, &["--backend", &url]).await);
            stores.push(store);
        }
        let file = folder.path().join("config.json");
        std::fs::write(&file, config().to_string()).unwrap();
        servers[0].ask(&["create", file.to_str().unwrap()]);
        let invitation = servers[0].invite(&["--ttl", "2h"]);
        let options = FleetOptions {
            proxy: servers[0].address().into(),
            token: invitation.token,
            ca_pin: invitation.ca_pin.parse().unwrap(),
            agents: hosts,
            at_once: 64,
            labels: 0,
            version: "15.1.0".into(),
        };
        let joined = SimulatedFleet::join(&options).await.unwrap();
        let observers: Vec<Arc<UpdateObserver>> = GROUPS.iter().map(|_| Arc::default()).collect();
        let (mut fleet, mut members) = (JoinSet::new(), vec![0; GROUPS.len()]);
        for (n, joined) in joined.into_iter().enumerate() {
            let group = usize::from(n % 100 >= GROUPS[0].1 && n % 5 != 3);
            members[group] += 1;
            let environment = ["staging", "prod"][group];
            let Habits { conduct, takes, confirms, asks_every } = habits(n);
            let options = HostOptions {
                servers: servers.iter().map(|server| server.address().into()).collect(),
                first: n % servers.len(),
                labels: HashMap::from([("environment".into(), environment.into())]),
                version: "15.1.0".into(),
                conduct,
                takes,
                confirms,
                asks_every,
                beats_every: Duration::from_secs(3),
            };
            let observer = observers[group].clone();
            fleet.spawn(SimulatedHost::new(joined, options, observer).live());
        }
        let cluster =
            Self { _folder: folder, _etcd: etcd, servers, stores, _fleet: fleet, observers, members };
        eventually("every host reports", TIMEOUT, async || {
            let nodes = cluster.servers[0].ask(&["nodes", "ls"]);
            let good = |node: &&Value| node["connected"] == true && node["version"] == "15.1.0";
            nodes.as_array().unwrap().iter().filter(good).count() == hosts
        })
        .await;
        cluster
    }

    pub fn choose(&self, version: &str) {
        let flag = format!("--set-agent-version={version}");
        // Its hosts download nothing.
        self.servers[0].ask(&["autoupdate", "update", &flag, "--allow-missing"]);
    }

    /// Chooses another version while hosts of the first group are under way, each of which knows that it is: one that
    /// does not is waited for until it would have asked by itself. Says how many were under way.
    pub async fn choose_in_the_middle(&self, version: &str) -> u32 {
        let staging = GROUPS[0].0;
        loop {
            eventually("hosts are under way", TIMEOUT, async || self.observers[0].in_flight() > 1).await;
            self.servers[0].ask(&["autoupdate", "pause"]);
            let hosts = ["autoupdate", "status", "--group", staging, "--hosts", "--outcome", "in_flight"];
            let is_woken = |host: &Value| host["reason"].as_str().unwrap().contains("has woken its updater");
            let all_know = async || self.servers[0].ask(&hosts).as_array().unwrap().iter().all(is_woken);
            eventually("all of them know", TIMEOUT, all_know).await;
            let under_way = self.observers[0].in_flight();
            if under_way > 0 {
                self.choose(version);
            }
            self.servers[0].ask(&["autoupdate", "resume"]);
            if under_way > 0 {
                return under_way;
            }
        }
    }

    /// How many have arrived, seen from outside.
    pub fn arrived(&self) -> usize {
        self.observers.iter().map(|observer| observer.arrived() as usize).sum()
    }

    pub fn cut_off(&self, server: usize) {
        self.stores[server].set_blocked(true);
    }

    pub fn heal(&self, server: usize) {
        self.stores[server].set_blocked(false);
    }

    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
    }

    fn limit(&self, group: usize) -> u32 {
        (self.members[group] as u32 * GROUPS[group].2).div_ceil(100)
    }

    /// The limits hold, by what is stored and by what is seen from outside.
    fn assert_limits(&self, rollout: &Value) {
        for (n, group) in rollout["groups"].as_array().unwrap().iter().enumerate() {
            let limit = self.limit(n);
            assert!(group["in_flight"].as_u64().unwrap() <= limit.into(), "{group}");
            let (seen, peak) = (self.observers[n].in_flight(), self.observers[n].peak());
            assert!(peak <= limit, "{}: {seen} and at most {peak} at once, limit {limit}", GROUPS[n].0);
        }
        let staging_done = rollout["groups"][0]["state"] == "succeeded";
        assert!(staging_done || self.observers[1].began() == 0, "prod began before staging succeeded");
    }

    /// The limits hold now.
    pub fn look(&self) {
        self.assert_limits(&self.servers[0].ask(&["autoupdate", "status"]));
    }

    /// Watches until every group has succeeded.
    pub async fn until_done(&self) {
        let started = Instant::now();
        let look = async || {
            let rollout = self.servers[0].ask(&["autoupdate", "status"]);
            self.assert_limits(&rollout);
            rollout["groups"].as_array().unwrap().clone()
        };
        until_seen("every group succeeds", TIMEOUT, look, |groups| {
            groups.len() == GROUPS.len() && groups.iter().all(|group| group["state"] == "succeeded")
        })
        .await;
        for (n, (name, ..)) in GROUPS.iter().enumerate() {
            let (peak, limit) = (self.observers[n].peak(), self.limit(n));
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
        let rollout = self.servers[0].ask(&["autoupdate", "status"]);
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
        let rollout = self.servers[0].ask(&["autoupdate", "status"]);
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
            let log = server.log();
            assert!(!log.contains("panicked"), "{log}");
        }
    }

    /// What the rollout stored for each upgraded host, heartbeats not counted.
    pub async fn assert_writes(&self, most: f64) {
        let mut written: HashMap<String, f64> = HashMap::new();
        for server in &self.servers {
            let log = server.log();
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
