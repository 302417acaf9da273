//! A real control plane with archives, behind a network that can be cut.

use std::time::Duration;

use refit_testbed::{Proxy, Ran, Server, directory, eventually, link_files};
use serde_json::Value;
use tempfile::TempDir;

use crate::archives::archives;

pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Cluster {
    server: Server,
    _folder: TempDir,
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
        link_files(archives(), &data.join("artifacts"));
        let server = Server::start(env!("CARGO_BIN_EXE_refit"), &data, &[]).await;
        let (invitation, network) = (server.invite(&[]), Proxy::to(server.address().into()).await);
        let (token, pin) = (invitation.token, invitation.ca_pin);
        let cluster = Self { server, _folder: folder, network, token, pin };
        cluster.choose("1.2.3");
        cluster
    }

    /// From now on, this is what every host should run.
    pub fn choose(&self, version: &str) {
        let flag = format!("--set-agent-version={version}");
        // One that is not there, too: what updaters make of that is tested.
        self.ctl(&["autoupdate", "update", &flag, "--immediate", "--allow-missing"]).good();
    }

    /// What the control plane knows of a host.
    pub fn node(&self, hostname: &str) -> Option<Value> {
        self.nodes(hostname).into_iter().next()
    }

    /// What it knows of all agents on a host.
    pub fn nodes(&self, hostname: &str) -> Vec<Value> {
        let nodes = self.server.ask(&["nodes", "ls"]);
        nodes.as_array().unwrap().iter().filter(|node| node["hostname"] == hostname).cloned().collect()
    }

    /// What an operator does at the control plane.
    pub fn ctl(&self, arguments: &[&str]) -> Ran {
        self.server.ctl(arguments)
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
}
