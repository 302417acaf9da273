//! A real control plane with archives, behind a network that can be cut.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use refit_testbed::{Process, Proxy, directory, eventually};
use refit_types::DataDir;
use serde_json::Value;
use tempfile::TempDir;

use crate::archives::archives;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Cluster {
    folder: TempDir,
    _server: Process,
    /// Everything that hosts send and get goes through it.
    pub network: Proxy,
    pub token: String,
    pub pin: String,
}

impl Cluster {
    /// One that wants the first version.
    pub async fn start() -> Self {
        let folder = directory();
        let data = folder.path().join("server");
        std::fs::create_dir_all(data.join("artifacts")).unwrap();
        for entry in std::fs::read_dir(archives()).unwrap() {
            let entry = entry.unwrap();
            std::fs::hard_link(entry.path(), data.join("artifacts").join(entry.file_name())).unwrap();
        }
        let fixed = ["server", "--listen", "127.0.0.1:0", "--diag-listen", "127.0.0.1:0", "--data-dir"];
        let arguments = fixed.into_iter().chain([data.to_str().unwrap()]).map(str::to_owned);
        let server = Process::start(REFIT, &arguments.collect::<Vec<_>>(), &data.with_extension("log"));
        let endpoint = DataDir::new(&data).endpoint();
        eventually("the server answers", PATIENCE, async || {
            endpoint.exists() && ctl(&data, &["status"]).status.success()
        })
        .await;
        let made = ctl(&data, &["nodes", "add", "--format", "json"]);
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        let told = |name: &str| made[name].as_str().unwrap().to_owned();
        let address = std::fs::read_to_string(endpoint).unwrap().trim().to_owned();
        let network = Proxy::to(address).await;
        let cluster = Self { folder, _server: server, network, token: told("token"), pin: told("ca_pin") };
        cluster.choose("1.2.3");
        cluster
    }

    /// From now on, this is what every host should run.
    pub fn choose(&self, version: &str) {
        let flag = format!("--set-agent-version={version}");
        let chosen = ctl(&self.data(), &["autoupdate", "update", &flag, "--immediate"]);
        assert!(chosen.status.success(), "{chosen:?}");
    }

    /// What the control plane knows of a host.
    pub fn node(&self, hostname: &str) -> Option<Value> {
        self.nodes(hostname).into_iter().next()
    }

    /// What it knows of all agents on a host.
    pub fn nodes(&self, hostname: &str) -> Vec<Value> {
        let listed = ctl(&self.data(), &["nodes", "ls", "--format", "json"]);
        let nodes: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
        nodes.into_iter().filter(|node| node["hostname"] == hostname).collect()
    }

    /// What an operator does at the control plane.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        ctl(&self.data(), arguments)
    }

    /// Waits until the control plane knows that of a host.
    pub async fn knows(&self, hostname: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        eventually(&format!("the control plane knows {what}"), PATIENCE, || {
            last = self.node(hostname);
            let found = last.as_ref().is_some_and(&holds);
            async move { found }
        })
        .await;
        last.unwrap()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("server")
    }
}

fn ctl(data: &Path, arguments: &[&str]) -> Output {
    Command::new(REFIT).args(["ctl", "--data-dir"]).arg(data).args(arguments).output().unwrap()
}
