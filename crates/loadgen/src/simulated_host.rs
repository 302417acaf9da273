//! A simulated host with an updater: how it behaves when it is instructed to update, and what is counted of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use refit_types::{FailedAgent, UpdateFailure, UpdateTarget, UpdaterStatus, Version};
use tokio::time::Instant;

use crate::{AgentError, FindAnswer, Joined, SimulatedAgent};

/// How long a host waits before it connects again, doubled each time up to the second.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// An agent or an updater that gets no answer for so long asks again, elsewhere.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// What a simulated host does when it is instructed to update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conduct {
    /// It has the new version after a while.
    Upgrades,
    /// Its updater undoes the update after a while, and reports that.
    RollsBack,
    /// Nothing comes of it, for at least that long.
    Hangs(Duration),
    /// It never reports again.
    Dies,
}

/// How a simulated host behaves.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// `HOST:PORT` of the servers, any of which will do.
    pub servers: Vec<String>,
    /// Which of them it tries first.
    pub first: usize,
    /// Its labels.
    pub labels: HashMap<String, String>,
    /// The version that it starts with.
    pub version: String,
    /// What it does when instructed to update.
    pub conduct: Conduct,
    /// How long an update takes.
    pub takes: Duration,
    /// Whether its updater asks once more before it switches, and calls the update off if it is not told so any more.
    pub confirms: bool,
    /// Whether its agent wakes its updater; otherwise that asks by itself at this pace.
    pub asks_every: Option<Duration>,
    /// The pace of its heartbeats.
    pub beats_every: Duration,
}

/// Counts, from outside the control plane, how many hosts update at the same time and how that ended.
#[derive(Debug, Default)]
pub struct UpdateObserver {
    in_flight: AtomicU32,
    peak: AtomicU32,
    began: AtomicU32,
    arrived: AtomicU32,
}

impl UpdateObserver {
    /// The most that were under way at one moment.
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::SeqCst)
    }

    /// Those under way now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// How often a host began to update.
    pub fn began(&self) -> u32 {
        self.began.load(Ordering::SeqCst)
    }

    /// How many have the new version.
    pub fn arrived(&self) -> u32 {
        self.arrived.load(Ordering::SeqCst)
    }

    fn begin(&self) {
        self.began.fetch_add(1, Ordering::SeqCst);
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(in_flight, Ordering::SeqCst);
    }

    fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One host that stays connected and carries out update instructions, until it dies.
pub struct SimulatedHost {
    joined: Joined,
    options: HostOptions,
    observer: Arc<UpdateObserver>,
    status: UpdaterStatus,
    /// The attempt that its agent last acknowledged, over all connections.
    acknowledged: u64,
    tried: Option<u64>,
}

/// The host died.
struct Died;

impl SimulatedHost {
    /// A host that has joined, and the observer that counts its updates.
    pub fn new(joined: Joined, options: HostOptions, observer: Arc<UpdateObserver>) -> Self {
        let status = UpdaterStatus { agent_updates_enabled: true, ..UpdaterStatus::default() };
        Self { joined, options, observer, status, acknowledged: 0, tried: None }
    }

    /// Runs until the host dies; reconnects to the next server whenever the connection is lost.
    pub async fn live(mut self) {
        let (mut pause, longest) = RECONNECT;
        let mut server = self.options.first;
        loop {
            let address = &self.options.servers[server % self.options.servers.len()];
            let (labels, version) = (self.options.labels.clone(), self.options.version.clone());
            match in_time(SimulatedAgent::connect_as(address, &self.joined, labels, &version)).await {
                Ok(mut agent) => {
                    pause = RECONNECT.0;
                    agent.set_updater_status(&self.status);
                    agent.acknowledge(self.acknowledged);
                    if let Ok(Died) = self.follow(&mut agent).await {
                        return;
                    }
                }
                Err(_) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
            }
            server += 1;
        }
    }

    async fn follow(&mut self, agent: &mut SimulatedAgent) -> Result<Died, AgentError> {
        agent.send().await?;
        let mut beat = tokio::time::interval(self.options.beats_every);
        let mut ask = Instant::now() + self.options.asks_every.unwrap_or_default();
        loop {
            let asks = async {
                match self.options.asks_every {
                    Some(_) => tokio::time::sleep_until(ask).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reply = agent.next_reply() => {
                    let reply = reply?;
                    let wakes = reply.upgrade_due && self.options.asks_every.is_none();
                    if wakes && Some(reply.attempt) != self.tried {
                        self.acknowledged = reply.attempt;
                        agent.acknowledge(reply.attempt);
                        agent.send().await?;
                        if self.update(agent).await? {
                            return Ok(Died);
                        }
                    }
                }
                _ = beat.tick() => agent.send().await?,
                () = asks => {
                    if self.update(agent).await? {
                        return Ok(Died);
                    }
                    ask = Instant::now() + self.options.asks_every.unwrap_or_default();
                }
            }
        }
    }

    /// What an updater does: asks, and updates only if instructed to; whether the host died of it.
    async fn update(&mut self, agent: &mut SimulatedAgent) -> Result<bool, AgentError> {
        let answer = in_time(agent.find()).await?;
        let is_new = answer.agent_version != self.options.version;
        let attempt = Some(answer.agent_update_attempt);
        if !answer.agent_auto_update || !is_new || attempt == self.tried {
            return Ok(false);
        }
        self.tried = attempt;
        self.observer.begin();
        let takes = match self.options.conduct {
            Conduct::Hangs(length) => length,
            _ => self.options.takes,
        };
        tokio::time::sleep(takes).await;
        if self.options.confirms && self.is_called_off(agent, &answer).await? {
            self.observer.end();
            agent.set_updater_status(&self.status);
            agent.send().await?;
            return Ok(false);
        }
        self.observer.end();
        match self.options.conduct {
            Conduct::Dies => return Ok(true),
            Conduct::Hangs(_) => {}
            Conduct::Upgrades => {
                self.observer.arrived.fetch_add(1, Ordering::SeqCst);
                self.options.version = answer.agent_version.clone();
                agent.set_version(&answer.agent_version);
                agent.send().await?;
            }
            Conduct::RollsBack => {
                self.status.last_failure = failure(&answer);
                agent.set_updater_status(&self.status);
                agent.send().await?;
            }
        }
        Ok(false)
    }

    /// Asks again; whether something else is wanted now, which is then in the status.
    async fn is_called_off(
        &mut self,
        agent: &mut SimulatedAgent,
        told: &FindAnswer,
    ) -> Result<bool, AgentError> {
        let answer = in_time(agent.find()).await?;
        if answer.agent_version == told.agent_version && answer.agent_auto_update {
            return Ok(false);
        }
        let version = told.agent_version.parse::<Version>().ok();
        let attempt = told.agent_update_attempt;
        self.status.called_off = version.map(|version| UpdateTarget { version, attempt });
        Ok(true)
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, AgentError>>) -> Result<T, AgentError> {
    let answered = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
    answered.unwrap_or_else(|_| Err(AgentError::Refused(format!("no answer within {ANSWERS_WITHIN:?}"))))
}

fn failure(answer: &FindAnswer) -> Option<UpdateFailure> {
    Some(UpdateFailure {
        attempt: answer.agent_update_attempt,
        version: answer.agent_version.parse::<Version>().ok()?,
        step: "health".into(),
        reason: "the agent ended (exit status 3)".into(),
        at: Timestamp::now(),
        agent: Some(Box::new(FailedAgent {
            ended: Some("exit status 3".into()),
            seen_dead_at: Some(Timestamp::now()),
            last_lines: vec!["error: /etc/refit.yaml: unknown field `labls` at line 3".into()],
        })),
    })
}
