//! The driver of rollouts: feeds the engine with what the store says, and stores what it decides. Any number
//! of servers do so at once; compare and swap on each group's record keeps them from doing anything twice.

mod arrivals;
mod carry_out;
mod cycle;
mod forgetting;
mod operator;
mod status;
mod stored;
mod survey;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_backend::SharedBackend;
use refit_rollout::{EXPIRES_AFTER, Engine, HostFacts, Plan};
use refit_types::{HostId, Instance, Version};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::events::Events;
use crate::find::{Answer, Answers};
use crate::fleet::{Fleet, Observer};
use crate::metrics::Metrics;
use arrivals::Arrivals;
pub(crate) use operator::OperatorError;
pub(crate) use status::Standing;
use stored::Stored;
pub(crate) use survey::{Place, Survey};

/// A server that has not heard from its store for so long tells nobody to upgrade: what it knows may be over.
const KNOWS_FOR: Duration = Duration::from_secs(5);
/// Servers whose end is remembered. Each has hosts that were lost with it; those move to another soon.
const MAX_DEATHS: usize = 100;

/// Brings the fleet to the version that its operator chose.
#[derive(Debug)]
pub(crate) struct Rollouts {
    backend: SharedBackend,
    fleet: Arc<Fleet>,
    events: Arc<Events>,
    metrics: Arc<Metrics>,
    server: Box<str>,
    /// What is advertised until an operator chooses a version.
    own_version: Arc<str>,
    now: fn() -> Timestamp,
    state: RwLock<State>,
    arrivals: Arrivals,
    /// Told when an operator has changed something.
    changed: Notify,
}

/// What this server knows.
#[derive(Debug, Default)]
struct State {
    stored: Stored,
    /// None before everything was read once, and while no version is chosen.
    engine: Option<Engine>,
    /// The version that an operator chose.
    chosen: Option<Arc<str>>,
    /// When the store was last heard.
    heard: Option<Instant>,
    /// Whether the engine has to be made anew from the fleet.
    is_outdated: bool,
    /// When other servers were found gone.
    deaths: HashMap<Box<str>, Timestamp>,
    /// Since when the store has been heard without a pause.
    reachable_since: Timestamp,
    /// The same by a clock that nobody sets.
    heard_since: Option<Instant>,
}

impl Rollouts {
    pub(crate) fn new(
        backend: SharedBackend,
        fleet: Arc<Fleet>,
        events: Arc<Events>,
        metrics: Arc<Metrics>,
        server: &str,
        own_version: Version,
        now: fn() -> Timestamp,
    ) -> Arc<Self> {
        let rollouts = Arc::new(Self {
            backend,
            fleet,
            events,
            metrics,
            server: server.into(),
            own_version: own_version.to_string().into(),
            now,
            state: RwLock::default(),
            arrivals: Arrivals::default(),
            changed: Notify::new(),
        });
        let observer: Arc<dyn Observer> = rollouts.clone();
        rollouts.fleet.observe(Arc::downgrade(&observer));
        rollouts
    }

    /// The attempt for which a host's agent should wake its updater now; 0 where attempts are not counted.
    /// Only the process that the host's record is of is told: of two that report as one host, one.
    pub(crate) fn hint(&self, host: HostId, session: Uuid) -> Option<u64> {
        let (known, _) = self.fleet.known(host)?;
        let is_its_own = known.report.as_ref().is_some_and(|report| report.session.id == session);
        self.due_attempt(host).filter(|_| is_its_own)
    }

    fn due_attempt(&self, host: HostId) -> Option<u64> {
        let state = self.read();
        let engine = state.engine.as_ref().filter(|_| state.is_certain())?;
        engine.hint(host, self.clock())
    }

    /// Whether the store has been silent for so long that other servers no longer count on this one: what
    /// was connected before then is better off with one of them.
    pub(crate) fn sheds(&self, connected: Instant) -> bool {
        let state = self.read();
        let silent = state.heard.filter(|heard| heard.elapsed() > crate::presence::TTL);
        silent.is_some_and(|since| connected < since) && state.stored.servers.len() > 1
    }

    /// The time, no finer than the engine keeps it.
    fn clock(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_certain(&self) -> bool {
        self.heard.is_some_and(|heard| heard.elapsed() < KNOWS_FOR)
    }

    /// Whether hosts have had the time to come back and tell how they are, since there is somebody again who
    /// can store it.
    fn has_heard_all(&self) -> bool {
        let expires = EXPIRES_AFTER.unsigned_abs();
        self.heard_since.is_some_and(|since| since.elapsed() >= expires)
    }

    /// What the engine needs to know of a host.
    fn facts(&self, plan: &Plan, instance: &Instance) -> HostFacts {
        HostFacts::of(plan, instance, self.lost_since(instance))
    }

    /// Since when no server hears the host.
    fn lost_since(&self, instance: &Instance) -> Option<Timestamp> {
        match instance.server.as_deref() {
            Some(server) if self.stored.servers.contains(server) => None,
            Some(server) => Some(self.deaths.get(server).copied().unwrap_or(instance.last_seen)),
            None => Some(instance.last_seen),
        }
    }
}

impl Observer for Rollouts {
    fn host_changed(&self, instance: &Instance) {
        let mut state = self.write();
        let facts = state.engine.as_ref().map(|engine| state.facts(engine.plan(), instance));
        if let (Some(facts), Some(engine)) = (facts, &mut state.engine) {
            engine.host(&facts);
        }
    }

    fn host_gone(&self, host: HostId) {
        if let Some(engine) = &mut self.write().engine {
            engine.forget(host);
        }
    }

    fn reloaded(&self) {
        self.write().is_outdated = true;
    }
}

impl Answers for Rollouts {
    fn answer(&self, host: Option<HostId>) -> Answer {
        let state = self.read();
        let version = state.chosen.as_ref().unwrap_or(&self.own_version).clone();
        let Some(engine) = state.engine.as_ref().filter(|_| state.is_certain()) else {
            return Answer { version, auto_update: false, jitter_seconds: 0, attempt: 0 };
        };
        let refit_rollout::Answer { auto_update, jitter_seconds, attempt } =
            engine.answer(host, self.clock());
        Answer { version, auto_update, jitter_seconds, attempt }
    }
}

#[cfg(test)]
mod tests;
