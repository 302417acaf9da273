//! Runs a documentation page: a server, a working directory, and hosts that do as the page says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_loadgen::{
    Conduct, FleetOptions, HostOptions, Joined, SimulatedFleet, SimulatedHost, UpdateObserver,
};
use refit_testbed::{Invitation, Server, directory, eventually, publish};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinSet};

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
/// Longer than anything on a page takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The version that hosts have before the play.
const VERSION: &str = "15.1.0";

/// The versions that the server publishes.
const PUBLISHED: [&str; 4] = ["15.1.0", "15.1.1", "15.1.2", "15.1.3"];

/// One cluster for one page.
pub struct Stage {
    server: Server,
    folder: TempDir,
    invitation: Invitation,
    fleet: JoinSet<()>,
    broken: Vec<(Joined, HostOptions, AbortHandle)>,
    observer: Arc<UpdateObserver>,
    hosts: usize,
}

impl Stage {
    /// A fresh server, and `refitctl` on the path.
    pub async fn set() -> Self {
        let folder = directory();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::fs::create_dir(folder.path().join("here")).unwrap();
        std::os::unix::fs::symlink(REFIT, folder.path().join("bin/refitctl")).unwrap();
        publish(&folder.path().join("data/artifacts"), &PUBLISHED);
        let named = ["--cluster-name", "example"];
        let server = Server::start(REFIT, &folder.path().join("data"), &named).await;
        Self {
            invitation: server.invite(&["--ttl", "1h"]),
            server,
            folder,
            fleet: JoinSet::new(),
            broken: Vec::new(),
            observer: Arc::default(),
            hosts: 0,
        }
    }

    fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    /// What a line prints, on both of its outputs as they come, and whether it succeeds.
    fn output(&self, typed: &str) -> (String, bool) {
        let bin = self.folder.path().join("bin").display().to_string();
        let output = Command::new("timeout")
            .args(["--signal=KILL", "60", "sh", "-c", &format!("exec 2>&1\n{typed}")])
            .current_dir(self.here())
            .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap_or_default()))
            .env("REFIT_DATA_DIR", self.server.data())
            .env("REFIT_SERVER", self.server.address())
            .env_remove("REFIT_IDENTITY")
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.success())
    }

    /// The lines that a command prints. Whether it succeeds must be seen in them.
    pub fn run(&self, typed: &str) -> Vec<String> {
        let (text, succeeded) = self.output(typed);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let tells_failure = lines.iter().any(|line| line.starts_with("error: "));
        if succeeded == tells_failure {
            lines.push(format!("(ended with {})", if succeeded { "success" } else { "a failure" }));
        }
        lines
    }

    /// Writes a file that the page shows.
    pub fn write(&self, file: &str, lines: &[String]) {
        std::fs::write(self.here().join(file), lines.join("\n") + "\n").unwrap();
    }

    /// Does what a direction says; false when the next command is not for this moment.
    pub async fn follow(&mut self, direction: &str) -> Result<bool, String> {
        let (what, rest) = direction.split_once(": ").unwrap_or((direction, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match (what, &words[..]) {
            ("hosts", [count, label, conduct]) => {
                let count = count.parse().map_err(|_| format!("{count:?} is not a number of hosts"))?;
                let label = label.split_once('=').ok_or("expected NAME=VALUE for the label of hosts")?;
                let conduct = match *conduct {
                    "upgrade" => Conduct::Upgrades,
                    "roll-back" => Conduct::RollsBack,
                    other => return Err(format!("{other:?} is nothing that hosts do")),
                };
                self.add(count, label, conduct).await;
                Ok(true)
            }
            ("mend", ["hosts"]) => {
                self.mend().await;
                Ok(true)
            }
            ("until", ["find", "tells", answer]) => {
                let ask = r#"curl -sk "https://$REFIT_SERVER/v1/webapi/find""#;
                let wanted = format!(r#""agent_auto_update":{answer},"#);
                let tells = async || self.output(ask).0.contains(&wanted);
                eventually(direction, TIMEOUT, tells).await;
                Ok(true)
            }
            ("until", [group, state]) => self.comes(group, state).await.map(|()| true),
            // A window of one hour in the week is closed, but for that hour.
            ("closed", [group]) => {
                let opens_at = self.group(group).and_then(|found| found["opens_at"].as_str()?.parse().ok());
                Ok(opens_at.is_some_and(|opens_at: Timestamp| opens_at > Timestamp::now()))
            }
            _ => Err(format!("the direction {direction:?} is not known")),
        }
    }

    fn group(&self, name: &str) -> Option<Value> {
        let status = self.server.ask(&["autoupdate", "status"]);
        status["groups"].as_array()?.iter().find(|group| group["name"] == name).cloned()
    }

    async fn comes(&self, group: &str, state: &str) -> Result<(), String> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let found = self.group(group);
            if found.as_ref().is_some_and(|found| found["state"] == state) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{group} was not {state} within {TIMEOUT:?}: {found:#?}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Hosts that join, and follow what they are told. Those that fail take longest, so that a group's counts
    /// at its halt are always the same.
    async fn add(&mut self, count: usize, label: (&str, &str), conduct: Conduct) {
        let options = FleetOptions {
            proxy: self.server.address().into(),
            token: self.invitation.token.clone(),
            ca_pin: self.invitation.ca_pin.parse().unwrap(),
            agents: count,
            at_once: 4,
            labels: 0,
            version: VERSION.into(),
        };
        for joined in SimulatedFleet::join(&options).await.unwrap() {
            let options = HostOptions {
                servers: vec![self.server.address().into()],
                first: 0,
                labels: HashMap::from([(label.0.to_owned(), label.1.to_owned())]),
                version: VERSION.into(),
                conduct,
                takes: Duration::from_millis(if conduct == Conduct::Upgrades { 100 } else { 4000 }),
                confirms: false,
                asks_every: None,
                beats_every: Duration::from_secs(1),
            };
            let host = SimulatedHost::new(joined.clone(), options.clone(), self.observer.clone());
            let task = self.fleet.spawn(host.live());
            if conduct != Conduct::Upgrades {
                self.broken.push((joined, options, task));
            }
        }
        self.hosts += count;
        eventually("every host reports", TIMEOUT, async || {
            let nodes = self.server.ask(&["nodes", "ls"]);
            nodes.as_array().unwrap().iter().filter(|node| node["version"] == VERSION).count() == self.hosts
        })
        .await;
    }

    /// Hosts that failed come back, and do not fail again. Nobody is away meanwhile: the new process of a host
    /// is heard before the old one goes.
    async fn mend(&mut self) {
        let mut old = Vec::new();
        for (joined, mut options, task) in self.broken.drain(..) {
            options.conduct = Conduct::Upgrades;
            options.labels.insert("mended".into(), "yes".into());
            self.fleet.spawn(SimulatedHost::new(joined, options, self.observer.clone()).live());
            old.push(task);
        }
        eventually("the mended hosts report", TIMEOUT, async || {
            let nodes = self.server.ask(&["nodes", "ls"]);
            let is_mended = |node: &&Value| node.to_string().contains(r#""mended":"yes""#);
            nodes.as_array().unwrap().iter().filter(is_mended).count() == old.len()
        })
        .await;
        old.iter().for_each(AbortHandle::abort);
    }
}
