//! The setup of the browser tests: a server with a week of history, and hosts in groups that depend on each other.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use refit_backend::{Backend, Key, SqliteBackend, Transaction};
use refit_testbed::{eventually, far_hour, publish};
use serde_json::{Value, json};

use crate::fleet::{Crew, Fleet, OLD};
use crate::host::{Host, ServerProcess};

/// For what a slow machine takes long for.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Each of which waits for what stands before it; the last two for the same.
pub const CREWS: [Crew; 4] = [
    Crew { group: "canary", prefix: "edge", hosts: 3 },
    Crew { group: "staging", prefix: "stage", hosts: 6 },
    Crew { group: "web", prefix: "web", hosts: 24 },
    Crew { group: "databases", prefix: "db", hosts: 5 },
];

pub struct Stage {
    host: Host,
    server: ServerProcess,
    pub fleet: Fleet,
    pub pin: String,
}

impl Stage {
    /// Everyone is connected, and runs what they should.
    pub async fn set() -> Self {
        let host = Host::new();
        remember(&host).await;
        publish(&host.path("data/artifacts"), &[OLD, "15.1.1"]);
        let server = host.serve_with(&["--cluster-name", "acme"], &[]);
        let groups = host.write("groups.json", &groups().to_string());
        host.ctl(&["create", groups.to_str().unwrap()]).good();
        let invitation = host.ctl(&["nodes", "add", "--ttl", "2h", "--format", "json"]).json();
        let fleet = Fleet::join(server.address(), &invitation, &CREWS).await;
        let pin = invitation["ca_pin"].as_str().unwrap().to_owned();
        let stage = Self { host, server, fleet, pin };
        let everyone = CREWS.iter().map(|crew| crew.hosts).sum::<usize>();
        eventually("every host reports", TIMEOUT, async || {
            let nodes = stage.ctl(&["nodes", "ls"]);
            let good = |node: &&Value| {
                let name = node["hostname"].as_str().unwrap_or_default();
                node["connected"] == true && !name.starts_with("load")
            };
            nodes.as_array().unwrap().iter().filter(good).count() == everyone
        })
        .await;
        // The version that everyone runs was chosen before.
        stage.choose(OLD);
        stage.until("databases", "state", "scheduled").await;
        stage
    }

    /// `https://HOST:PORT`.
    pub fn origin(&self) -> String {
        format!("https://{}", self.server.address())
    }

    pub fn ctl(&self, arguments: &[&str]) -> Value {
        self.host.ctl(&[&["--format", "json"], arguments].concat()).json()
    }

    pub fn choose(&self, version: &str) {
        self.ctl(&["autoupdate", "update", &format!("--set-agent-version={version}")]);
    }

    /// The address that signs somebody in, once.
    pub fn invitation(&self) -> String {
        self.ctl(&["web", "login"])["url"].as_str().unwrap().to_owned()
    }

    /// The same for somebody who has an identity of their own.
    pub fn invitation_for(&self, user: &str, roles: &str) -> String {
        let file = self.host.path(&format!("{user}.json"));
        let file = file.to_str().unwrap();
        self.ctl(&["auth", "sign", "--user", user, "--roles", roles, "--out", file]);
        let server = self.server.address();
        let told = self.ctl(&["--identity", file, "--server", server, "web", "login"]);
        told["url"].as_str().unwrap().to_owned()
    }

    pub fn group(&self, name: &str) -> Value {
        let rollout = self.ctl(&["autoupdate", "status"]);
        let groups = rollout["groups"].as_array().unwrap();
        groups.iter().find(|group| group["name"] == name).cloned().unwrap_or_default()
    }

    /// Waits until the server says so of a group.
    pub async fn until(&self, group: &str, field: &str, value: impl Into<Value>) {
        let value = value.into();
        let what = format!("{field} of {group} is {value}");
        eventually(&what, TIMEOUT, async || self.group(group)[field] == value).await;
    }
}

/// A night that is half a day away, whenever this runs: the window of the last group is closed.
fn groups() -> Value {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let far = (Timestamp::now() + SignedDuration::from_hours(11)).to_zoned(berlin);
    let group = |name: &str, at_once: &str, requires: &[&str]| {
        json!({
            "name": name,
            "agents": { "instance_labels_expression": format!("labels.group == {name:?}") },
            "start_hour": far_hour(),
            "window_hours": 24,
            "max_in_flight": at_once,
            "timeout_seconds": 900,
            "max_failed_before_halt": "10%",
            "requires": requires,
        })
    };
    let mut databases = group("databases", "20%", &["staging"]);
    databases["window_hours"] = json!(2);
    databases["start_hour"] = json!(far.hour());
    databases["timezone"] = json!("Europe/Berlin");
    json!({
        "kind": "cluster_maintenance_config",
        "spec": { "agent_auto_update_groups": { "regular": [
            group("canary", "50%", &[]),
            group("staging", "50%", &["canary"]),
            group("web", "25%", &["staging"]),
            databases,
        ] } },
    })
}

/// What a server would have seen in the week before: two updates that went through the fleet.
async fn remember(host: &Host) {
    let store = host.path("data/backend/sqlite.db");
    std::fs::create_dir_all(store.parent().unwrap()).unwrap();
    let backend = SqliteBackend::open(&store).unwrap();
    let (now, all) = (Timestamp::now(), CREWS.iter().map(|crew| crew.hosts).sum::<usize>() as i64);
    let samples: Vec<i64> = (1..7 * 24 * 6).rev().collect();
    for some in samples.chunks(90) {
        let mut transaction = Transaction::new();
        for ago in some {
            let at = now - SignedDuration::from_mins(ago * 10);
            // A few first; then, some hours later, all the others in an evening.
            let moved = |began: i64| {
                let since = began - ago;
                if since < 36 { (since / 2).clamp(0, 9) } else { (9 + since - 36).min(all) }
            };
            let (first, second) = (moved(6 * 144), moved(2 * 144 + 50));
            let counts = [("14.9.2", all - first), ("15.0.4", first - second), (OLD, second)];
            let hosts: serde_json::Map<String, Value> = counts
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(version, count)| (version.to_owned(), json!(count)))
                .collect();
            let key = format!("/fleet_samples/v1/default/{:010}", at.as_second() / 600);
            let sample = json!({ "at": at.to_string(), "hosts": hosts });
            transaction = transaction.put(&Key::new(key).unwrap(), sample.to_string());
        }
        backend.transact(transaction).await.unwrap();
    }
}
