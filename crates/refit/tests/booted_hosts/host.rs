//! A booted host with an agent that `refit-update` keeps.

use std::path::Path;

use refit_testbed::{Machine, Ran, eventually};
use serde_json::Value;

use crate::archives::archive;
use crate::cluster::{Cluster, PATIENCE};

const DATABASE: &str = "/var/lib/refit/proc/sqlite.db";
const JOURNAL: &str = "/var/lib/refit/versions/journal.json";

pub struct Host {
    pub machine: Machine,
    pub cluster: Cluster,
}

/// Says something of a unit otherwise.
pub fn drop_in(machine: &Machine, unit: &str, text: &str) {
    let folder = machine.path("/etc/systemd/system").join(format!("{unit}.d"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("test.conf"), text).unwrap();
}

impl Host {
    /// A booted host with nothing on it, and a cluster that wants 1.2.3 on it. Updates are where a test wants them: the
    /// timer and the agent's hint have tests of their own.
    pub async fn fresh() -> Self {
        let cluster = Cluster::start().await;
        let mut machine = Machine::new();
        for suffix in ["", "-b"] {
            for (kind, text) in [
                ("timer", "[Timer]\nOnCalendar=\nOnCalendar=2199-01-01\nPersistent=no\n"),
                ("path", "[Path]\nPathChanged=\nPathChanged=/run/never\n"),
            ] {
                drop_in(&machine, &format!("refit-update{suffix}.{kind}"), text);
            }
        }
        machine.boot();
        Self { machine, cluster }
    }

    /// The same, with nothing changed.
    pub async fn untouched() -> Self {
        Self { cluster: Cluster::start().await, machine: Machine::booted() }
    }

    /// Unpacks an archive by hand, as a person does on a new host.
    pub fn unpack(&self) {
        std::fs::copy(archive("1.2.3"), self.machine.path("/root/refit.tar.gz")).unwrap();
        self.run(&["tar", "-xzf", "/root/refit.tar.gz", "-C", "/root"]).good();
    }

    /// Unpacks an archive by hand and enables the updater in it.
    pub fn enable(&self) -> Ran {
        self.unpack();
        self.enable_by(&["/root/refit/refit-update"])
    }

    /// Has that updater enabled.
    pub fn enable_by(&self, updater: &[&str]) -> Ran {
        let (proxy, pin) = (self.cluster.network.endpoint(), &self.cluster.pin);
        self.run(&[updater, &["enable", "--proxy", &proxy, "--ca-pin", pin]].concat())
    }

    /// A host whose agent is enabled, has joined, and works at 1.2.3.
    pub async fn enabled() -> Self {
        let host = Self::fresh().await;
        assert!(host.enable().good().ends_with("Installed 1.2.3.\n"));
        host.start_agent().await;
        host
    }

    /// Configures the agent, starts it, and waits until it has joined.
    pub async fn start_agent(&self) {
        self.configure("/etc/refit.yaml");
        self.run(&["systemctl", "enable", "--now", "refit"]).good();
        self.connects().await;
    }

    /// Writes down for an agent what it needs to join.
    pub fn configure(&self, path: &str) {
        let Cluster { network, token, pin, .. } = &self.cluster;
        let proxy = network.endpoint();
        let config = format!("refit:\n  proxy: {proxy}\n  token: {token}\n  ca_pin: {pin}\n");
        std::fs::write(self.machine.path(path), config).unwrap();
    }

    pub async fn connects(&self) {
        eventually("the agent connects", PATIENCE, async || {
            self.readiness().is_some_and(|readiness| readiness["connected"] == true)
        })
        .await;
    }

    pub fn run(&self, command: &[&str]) -> Ran {
        self.machine.run(command).into()
    }

    pub fn update(&self, arguments: &[&str]) -> Ran {
        self.run(&[&["/usr/local/bin/refit-update"], arguments].concat())
    }

    /// The cluster wants that version, and the host goes there.
    #[track_caller]
    pub fn goes_to(&self, version: &str) {
        self.cluster.choose(version);
        let said = self.update(&["update"]).good();
        assert!(said.contains(&format!(" to {version}.")), "{said}");
        assert_eq!(self.active(), version);
        assert_eq!(self.runs(), version);
    }

    pub fn status(&self) -> Value {
        self.update(&["status"]).json()
    }

    /// How the agent says that it is, if it says anything.
    pub fn readiness(&self) -> Option<Value> {
        let asked = self.run(&["/usr/local/bin/refit", "agent", "status", "--format", "json"]);
        serde_json::from_str(&asked.stdout).ok()
    }

    /// The version of the agent that runs.
    pub fn runs(&self) -> String {
        let readiness = self.readiness().unwrap();
        assert_eq!(readiness["pid"].to_string(), self.shows("MainPID"));
        readiness["version"].as_str().unwrap().into()
    }

    /// The version that every link leads to, and that the unit is of.
    #[track_caller]
    pub fn active(&self) -> String {
        let unit = "lib/systemd/system/refit.service";
        self.run(&["cmp", &format!("/usr/local/{unit}"), "/var/lib/refit/active/etc/systemd/refit.service"])
            .good();
        let links = ["refit", "refitctl", "refit-update"];
        let found = links.map(|link| self.run(&["readlink", "-f", &format!("/usr/local/bin/{link}")]).good());
        let versions = found.each_ref().map(|path| {
            let below = path.strip_prefix("/var/lib/refit/versions/");
            below.and_then(|below| below.split('/').next()).unwrap_or_else(|| panic!("{found:?}"))
        });
        assert!(versions.iter().all(|version| *version == versions[0]), "{found:?}");
        versions[0].into()
    }

    /// What systemd knows about the agent.
    pub fn shows(&self, property: &str) -> String {
        self.machine.show("refit.service", property)
    }

    /// Writes something into the agent's database: by that it is known again.
    pub fn mark(&self, row: &str) {
        self.sql(&format!("CREATE TABLE IF NOT EXISTS marker (v TEXT); INSERT INTO marker VALUES ('{row}')"));
    }

    /// What was written into the agent's database.
    pub fn marks(&self) -> Vec<String> {
        self.sql("SELECT v FROM marker ORDER BY v").lines().map(str::to_owned).collect()
    }

    fn sql(&self, statements: &str) -> String {
        let program = ["sqlite3", "-batch", "-cmd", ".timeout 20000"];
        Ran::from(self.machine.outside(&program, DATABASE, &[statements])).good()
    }

    /// Whether a switch is under way.
    pub fn has_journal(&self) -> bool {
        self.machine.path(JOURNAL).exists()
    }

    /// What the pointer says, read from outside.
    pub fn points_to(&self) -> String {
        let target = std::fs::read_link(self.machine.path("/var/lib/refit/active")).unwrap();
        Path::new(&target).file_name().unwrap().to_str().unwrap().into()
    }
}
