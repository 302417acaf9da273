//! Two servers on one etcd and a fleet of agents, all of them processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_identity::{CaPin, Certificate, Identities, Identity, SqliteIdentities, StoredIdentities};
use refit_testbed::{Etcd, Process, Ran, Server as Running, Signal, directory, eventually};
use refit_types::{AgentRole, DataDir};
use serde_json::Value;
use tempfile::TempDir;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
/// A lease of a killed server ends, and agents that lost it wait their turn, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// Agents that join at once: more would only wait for each other.
const AT_ONCE: usize = 10;

pub struct Cluster {
    pub folder: TempDir,
    pub servers: Vec<Server>,
    pub agents: Vec<Agent>,
}

/// A server, and what an administrator asks of it in a rotation.
pub struct Server {
    running: Running,
}

pub struct Agent {
    process: Process,
    proxies: String,
    roles: &'static str,
    pub data: DataDir,
}

impl Server {
    /// Runs `refit ctl` as the administrator on this server's host.
    pub fn ctl(&self, arguments: &[&str]) -> Ran {
        self.running.ctl(&[&["--format", "json"], arguments].concat())
    }

    /// Runs `refit ctl` with this server as whoever the file speaks for.
    pub fn ctl_as(&self, identity: &Path, arguments: &[&str]) -> Ran {
        self.ctl(&[&["--identity", identity.to_str().unwrap()], arguments].concat())
    }

    pub fn rotation(&self) -> Value {
        self.ctl(&["auth", "rotate", "status"]).json()
    }

    pub fn go_to(&self, phase: &str) -> Ran {
        self.ctl(&["auth", "rotate", "--phase", phase])
    }

    pub fn force_to(&self, phase: &str) -> Ran {
        self.ctl(&["auth", "rotate", "--force", "--phase", phase])
    }

    /// A token by which hosts join, and the pin that they know the cluster by.
    pub fn invitation(&self) -> Vec<String> {
        let made = self.running.invite(&["--roles", "node,kube"]);
        vec!["--token".into(), made.token, "--ca-pin".into(), made.ca_pin]
    }
}

impl Agent {
    fn launch(data: &DataDir, proxies: &str, roles: &str, more: &[String]) -> Process {
        let root = data.root().to_str().unwrap();
        let fixed = ["agent", "start", "--data-dir", root, "--proxy", proxies, "--roles", roles];
        let arguments: Vec<String> = fixed.into_iter().map(str::to_owned).chain(more.to_vec()).collect();
        Process::start(REFIT, &arguments, &data.root().with_extension("log"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.root().with_extension("log")).unwrap()
    }

    pub fn id(&self) -> String {
        std::fs::read_to_string(self.data.host_uuid()).unwrap().trim().to_owned()
    }

    pub fn roles(&self) -> impl Iterator<Item = AgentRole> {
        self.roles.split(',').map(|role| role.parse().unwrap())
    }

    pub fn crash_and_restart(&mut self) {
        self.process.kill();
        self.start(&[]);
    }

    pub fn start(&mut self, more: &[String]) {
        self.process = Self::launch(&self.data, &self.proxies, self.roles, more);
    }

    pub async fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        self.ends().await;
    }

    /// Waits for its end by itself; what it said last.
    pub async fn ends(&mut self) -> String {
        let process = std::sync::Mutex::new(&mut self.process);
        eventually("the agent ends", TIMEOUT, async || process.lock().unwrap().has_ended()).await;
        self.log().lines().last().unwrap_or_default().to_owned()
    }

    /// Who issued the identity that it is connected with, as it tells its updater.
    pub async fn issuer(&self) -> Option<CaPin> {
        refit_agent::query_readiness(&self.data.agent_socket()).await.ok()?.identity_issuer
    }

    /// What it has stored; it must not run.
    pub async fn stored(&self, role: AgentRole) -> StoredIdentities {
        self.store().load(role).await.unwrap()
    }

    pub fn store(&self) -> Identities {
        let opened = SqliteIdentities::open(&self.data.agent_store(), Timestamp::now()).unwrap();
        Identities::new(Arc::new(opened.store))
    }

    /// Another host's worth of a copy of all its files; it must not run.
    pub fn copied_to(&self, root: PathBuf) -> Agent {
        let copied = Command::new("cp").args(["-a", "--"]).arg(self.data.root()).arg(&root).status();
        assert!(copied.unwrap().success());
        let none = Process::start("/bin/true", &[], &root.with_extension("log"));
        Agent { process: none, proxies: self.proxies.clone(), roles: self.roles, data: DataDir::new(root) }
    }
}

impl Cluster {
    pub async fn start(name: &str, agents: usize) -> Self {
        let folder = directory();
        let url =
            format!("etcd://{}/rotation-{}-{name}", Etcd::shared().await.endpoint(), std::process::id());
        let mut servers: Vec<Server> = Vec::new();
        for name in ["one", "two"] {
            let data = folder.path().join(name);
            servers.push(Server { running: Running::start(REFIT, &data, &["--backend", &url]).await });
        }
        let proxies = servers.iter().map(|server| server.running.address()).collect::<Vec<_>>().join(",");
        let invitation = servers[0].invitation();
        let mut cluster = Self { folder, servers, agents: Vec::new() };
        for n in 0..agents {
            let data = DataDir::new(cluster.folder.path().join(format!("agent-{n}")));
            let roles = if n % 5 == 0 { "node,kube" } else { "node" };
            let process = Agent::launch(&data, &proxies, roles, &invitation);
            cluster.agents.push(Agent { process, proxies: proxies.clone(), roles, data });
            if n % AT_ONCE == AT_ONCE - 1 {
                let joined = async || cluster.agents.iter().all(|agent| agent.data.trust().exists());
                eventually("the agents join", TIMEOUT, joined).await;
            }
        }
        cluster.all_connected("standby").await;
        cluster
    }

    /// Both servers say so, and that nobody is left out.
    pub async fn all_connected(&self, phase: &str) {
        for server in &self.servers {
            let all = async || {
                let nodes = server.ctl(&["nodes", "ls"]).json();
                let good = |node: &&Value| node["connected"] == true && node["rotation_phase"] == phase;
                nodes.as_array().unwrap().iter().filter(good).count() == self.agents.len()
            };
            eventually("every agent is connected", TIMEOUT, all).await;
        }
    }

    /// Both servers are in the phase, and no host lags in it. People may.
    pub async fn hosts_follow(&self, phase: &str) {
        for server in &self.servers {
            let follow = async || {
                let rotation = server.rotation();
                let hosts =
                    rotation["lagging"].as_array().unwrap().iter().filter(|who| who["kind"] == "host");
                rotation["phase"] == phase && hosts.count() == 0
            };
            eventually(&format!("every host is in {phase}"), TIMEOUT, follow).await;
        }
    }

    /// Each server's administrator can work, whatever has just happened.
    pub fn administrators_work(&self) {
        for server in &self.servers {
            server.ctl(&["nodes", "ls"]).json();
        }
    }

    /// Crashes some agents and a server, others in each round, and starts them again.
    pub async fn crash_some(&mut self, round: usize) {
        let count = self.agents.len() / 10;
        for agent in self.agents.iter_mut().skip(round * count % 50).take(count) {
            agent.crash_and_restart();
        }
        let server = round % self.servers.len();
        self.servers[server].running.crash_and_restart().await;
    }

    pub fn sign(&self, user: &str) -> PathBuf {
        let out = self.folder.path().join(format!("{user}.json"));
        let file = out.to_str().unwrap();
        self.servers[0].ctl(&["auth", "sign", "--user", user, "--roles", "viewer", "--out", file]).json();
        out
    }

    /// The one authority that both servers name.
    pub fn only_pin(&self) -> String {
        let pins: Vec<Value> =
            self.servers.iter().map(|server| server.rotation()["ca_pins"].clone()).collect();
        assert_eq!(pins[0], pins[1]);
        assert_eq!(pins[0].as_array().unwrap().len(), 1, "{pins:?}");
        pins[0][0].as_str().unwrap().to_owned()
    }

    pub fn works(&self, identity: &Path) {
        for server in &self.servers {
            server.ctl_as(identity, &["status"]).json();
        }
    }

    /// Both servers refuse the identity, even when its holder has learned to trust them.
    pub fn refuse(&self, identity: &Path) {
        let path = self.folder.path().join("worthless.json");
        let admin = Identity::read(&DataDir::new(self.servers[0].running.data()).admin_identity()).unwrap();
        let identity = Identity::read(identity).unwrap();
        let trusting = identity.with_authorities(identity.name(), admin.authorities().to_vec(), []);
        trusting.unwrap().write(&path).unwrap();
        for server in &self.servers {
            let said = server.ctl_as(&path, &["status"]).bad(1);
            assert!(said.contains("did not sign it"), "{said}");
        }
    }

    /// Stops every agent and looks at what it has: one authority, and identities of it in each role.
    pub async fn every_agent_trusts_only(&mut self, pin: &str) {
        let mut ssh = Vec::new();
        for agent in &mut self.agents {
            assert_eq!(agent.issuer().await.unwrap().to_string(), pin, "{}", agent.id());
            agent.stop().await;
            let trusted =
                Certificate::from_pem(&std::fs::read_to_string(agent.data.trust()).unwrap()).unwrap();
            assert_eq!(CaPin::of(&trusted).to_string(), pin);
            for role in agent.roles() {
                let stored = agent.stored(role).await;
                let identity = stored.active().unwrap();
                assert_eq!(identity.authorities(), std::slice::from_ref(&trusted), "{} {role}", agent.id());
                assert!(identity.certificate().is_signed_by(&trusted), "{} {role}", agent.id());
                assert_eq!(stored.state.phase.as_str(), "standby");
                ssh.push(identity.ssh_authorities().to_vec());
            }
        }
        ssh.dedup();
        assert!(ssh.len() == 1 && ssh[0].len() == 1, "{ssh:?}");
    }
}
