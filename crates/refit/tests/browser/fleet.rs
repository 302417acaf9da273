//! Simulated hosts of the browser tests: they join, and succeed or fail with an update when the test says so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_loadgen::{AgentError, FindAnswer, FleetOptions, Joined, SimulatedAgent, SimulatedFleet};
use refit_types::{UpdateFailure, UpdaterStatus};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What everyone runs at first.
pub const OLD: &str = "15.1.0";
/// What failed on a host whose update was undone, in its updater's words.
pub const STEP: &str = "health";
pub const REASON: &str = "the agent does not reach the control plane, and the updater does: \
                          the proxy refused the tunnel (502 Bad Gateway) after 60 s";

const BEAT: Duration = Duration::from_secs(2);
const RECONNECT: Duration = Duration::from_millis(200);

/// The hosts of one group.
pub struct Crew {
    /// The name of the group.
    pub group: &'static str,
    /// What its hosts' names begin with.
    pub prefix: &'static str,
    pub hosts: usize,
}

/// How many hosts of a group may end their update well, and how many badly.
struct Leave {
    good: Semaphore,
    bad: Semaphore,
}

impl Leave {
    fn none() -> Self {
        Self { good: Semaphore::new(0), bad: Semaphore::new(0) }
    }

    /// Waits for leave; whether the update may succeed.
    async fn given(&self) -> bool {
        tokio::select! {
            biased;
            leave = self.bad.acquire() => { leave.unwrap().forget(); false }
            leave = self.good.acquire() => { leave.unwrap().forget(); true }
        }
    }
}

/// Everyone, for as long as it lives.
pub struct Fleet {
    leaves: HashMap<&'static str, Arc<Leave>>,
    _hosts: JoinSet<()>,
}

impl Fleet {
    pub async fn join(address: &str, invitation: &Value, crews: &[Crew]) -> Self {
        let text = |name: &str| invitation[name].as_str().unwrap().to_owned();
        let options = FleetOptions {
            proxy: address.to_owned(),
            token: text("token"),
            ca_pin: text("ca_pin").parse().unwrap(),
            agents: crews.iter().map(|crew| crew.hosts).sum(),
            at_once: 8,
            labels: 0,
            version: OLD.into(),
        };
        let mut joined = SimulatedFleet::join(&options).await.unwrap().into_iter();
        let (mut leaves, mut hosts) = (HashMap::new(), JoinSet::new());
        for crew in crews {
            let leave = Arc::new(Leave::none());
            leaves.insert(crew.group, leave.clone());
            for (number, joined) in (1..=crew.hosts).zip(joined.by_ref()) {
                hosts.spawn(Follower::new(crew, number, address, joined, leave.clone()).live());
            }
        }
        Self { leaves, _hosts: hosts }
    }

    /// So many updates of a group succeed.
    pub fn let_succeed(&self, group: &str, count: usize) {
        self.leaves[group].good.add_permits(count);
    }

    /// So many updates of a group are undone, before any succeeds.
    pub fn let_fail(&self, group: &str, count: usize) {
        self.leaves[group].bad.add_permits(count);
    }
}

/// One host that stays connected.
struct Follower {
    name: String,
    address: String,
    joined: Joined,
    labels: HashMap<String, String>,
    leave: Arc<Leave>,
    version: String,
    status: UpdaterStatus,
    /// What its agent has said that it knows of, and what is under way, over all connections.
    tried: u64,
    flight: Option<FindAnswer>,
}

impl Follower {
    fn new(crew: &Crew, number: usize, address: &str, joined: Joined, leave: Arc<Leave>) -> Self {
        let region = ["eu-central-1", "eu-west-1", "us-east-1"][number % 3];
        let pairs = [("group", crew.group), ("region", region), ("service", crew.prefix)];
        let earlier =
            Timestamp::now() - SignedDuration::from_hours(50) + SignedDuration::from_mins(number as i64);
        let status = UpdaterStatus {
            agent_version_installed: OLD.parse().ok(),
            agent_version_desired: OLD.parse().ok(),
            agent_version_previous: "15.0.4".parse().ok(),
            agent_update_time_last: Some(earlier),
            agent_updates_enabled: true,
            ..UpdaterStatus::default()
        };
        Self {
            name: format!("{}-{number}", crew.prefix),
            address: address.to_owned(),
            joined,
            labels: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            leave,
            version: OLD.into(),
            status,
            tried: 0,
            flight: None,
        }
    }

    async fn live(mut self) {
        loop {
            // Whoever is cut off comes back.
            let _: Result<(), AgentError> = self.follow().await;
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn follow(&mut self) -> Result<(), AgentError> {
        let labels = self.labels.clone();
        let mut agent =
            SimulatedAgent::connect_as(&self.address, &self.joined, labels, &self.version).await?;
        agent.set_hostname(&self.name);
        agent.set_updater_status(&self.status);
        agent.acknowledge(self.tried);
        let mut beat = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                reply = agent.next_reply() => {
                    let reply = reply?;
                    if reply.upgrade_due && reply.attempt != self.tried {
                        agent.acknowledge(reply.attempt);
                        agent.send().await?;
                        let answer = agent.find().await?;
                        let is_due = answer.agent_auto_update && answer.agent_version != self.version;
                        if is_due && answer.agent_update_attempt != self.tried {
                            self.tried = answer.agent_update_attempt;
                            self.flight = Some(answer);
                        }
                    }
                }
                _ = beat.tick() => agent.send().await?,
                is_good = self.leave.given(), if self.flight.is_some() => {
                    let answer = self.flight.take().unwrap();
                    self.end(answer, is_good);
                    agent.set_version(&self.version);
                    agent.set_updater_status(&self.status);
                    agent.send().await?;
                }
            }
        }
    }

    fn end(&mut self, answer: FindAnswer, is_good: bool) {
        let (now, new) = (Timestamp::now(), answer.agent_version);
        self.status.agent_version_desired = new.parse().ok();
        if is_good {
            self.status.agent_version_previous = self.version.parse().ok();
            self.status.agent_version_installed = new.parse().ok();
            self.status.agent_update_time_last = Some(now);
            self.version = new;
        } else {
            let (version, attempt) = (new.parse().unwrap(), answer.agent_update_attempt);
            self.status.failures += 1;
            self.status.last_failure = Some(UpdateFailure {
                attempt,
                version,
                step: STEP.into(),
                reason: REASON.into(),
                at: now,
                agent: None,
            });
        }
    }
}
