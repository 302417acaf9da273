//! Rollouts for operators: polls the store, begins epochs, carries out operators' actions and reports status. Decisions
//! are made by the owner of the fleet's state. Several servers may act at once; compare-and-swap prevents duplicates.

mod empty_groups;
mod expiry;
mod failures;
mod good_version;
mod host_status;
mod operator;
mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_backend::{Error, Result, SharedBackend, Transaction};
use refit_types::{ClusterMaintenanceConfig, RolloutRecord};
use tokio::sync::watch;

use crate::Features;
use crate::events::{Event, Events, SERVER};
use crate::fleet::{Fleet, StoreReading, encoded, group_key, plan_key, readable};
use failures::ShownFailures;
pub(crate) use host_status::{HostPosition, HostStatuses};
pub(crate) use operator::OperatorError;
pub(crate) use status::HostStatus;

/// How often the store is read and decisions are made: often enough for a rollout to move in seconds, and rarely enough
/// that hosts share the writes of their group.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Conflicts while beginning an epoch before it is left to the next reading.
const MAX_CONFLICTS: u32 = 5;

/// Brings the fleet to the version that its operator chose.
#[derive(Debug)]
pub(crate) struct Rollouts {
    backend: SharedBackend,
    fleet: Arc<Fleet>,
    events: Arc<Events>,
    server: Arc<str>,
    features: Features,
    now: fn() -> Timestamp,
    failures: ShownFailures,
}

impl Rollouts {
    pub(crate) fn new(
        backend: SharedBackend,
        fleet: Arc<Fleet>,
        events: Arc<Events>,
        server: Arc<str>,
        features: Features,
        now: fn() -> Timestamp,
    ) -> Arc<Self> {
        let failures = ShownFailures::default();
        Arc::new(Self { backend, fleet, events, server, features, now, failures })
    }

    /// Reads the store every second, and begins an epoch when one is due, until the server stops.
    pub(crate) async fn poll(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let (mut last_error, mut is_regular, mut next) = (None, true, Instant::now());
        loop {
            let read = async {
                let error = self.read_for_owner(is_regular).await.err().map(|error| error.to_string());
                if let Some(error) = error.as_ref().filter(|_| last_error != error) {
                    tracing::warn!(error, "could not read the store; retrying every second");
                }
                last_error = error;
            };
            tokio::select! {
                () = read => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if is_regular {
                next = Instant::now() + POLL_EVERY.mul_f64(rand::random_range(0.9..1.1));
            }
            is_regular = tokio::select! {
                () = tokio::time::sleep_until(next.into()) => true,
                () = self.reading_requested() => false,
                _ = stop.wait_for(|stop| *stop) => return,
            };
        }
    }

    /// Waits for a requested reading, with jitter: servers that lost the same conflict do not retry in step.
    async fn reading_requested(&self) {
        self.fleet.wants_poll().await;
        tokio::time::sleep(Duration::from_millis(rand::random_range(10..100))).await;
    }

    async fn read_for_owner(&self, is_regular: bool) -> Result<()> {
        for _ in 0..=MAX_CONFLICTS {
            let asked = Instant::now();
            let reading = self.read_store().await?;
            let is_begun = self.begin_if_due(&reading).await?;
            let kept = if is_begun { Ok(()) } else { self.keep_good_version(&reading).await };
            self.fleet.tick(reading, asked, is_regular).await;
            if !is_begun {
                return kept;
            }
        }
        Ok(())
    }

    /// Reads the store, begins a new epoch if a change of operators needs one, and returns once this server's view
    /// includes it.
    pub(crate) async fn sync_from_store(&self) -> Result<()> {
        self.read_for_operator(false).await
    }

    async fn read_for_operator(&self, is_change: bool) -> Result<()> {
        for _ in 0..=MAX_CONFLICTS {
            let asked = Instant::now();
            let reading = self.read_store().await?;
            if !self.begin_if_due(&reading).await? {
                return self.fleet.tell_reading(reading, asked, is_change).await;
            }
        }
        Ok(())
    }

    async fn read_store(&self) -> Result<StoreReading> {
        StoreReading::read(&self.backend, self.features).await
    }

    /// Begins an epoch if one is due. Returns whether the store must be read again.
    async fn begin_if_due(&self, reading: &StoreReading) -> Result<bool> {
        let Some(record) = reading.snapshot.due_plan(self.fleet.clock()) else { return Ok(false) };
        match self.begin(record, reading).await {
            Ok(()) | Err(Error::Conflict { .. }) => Ok(true),
            Err(other) => Err(other),
        }
    }

    /// Begins an epoch, or stores another level in this one, unless something has changed since the reading.
    async fn begin(&self, record: RolloutRecord, reading: &StoreReading) -> Result<()> {
        let mut transaction = Transaction::new();
        for (key, expect) in reading.snapshot.unchanged()? {
            transaction = transaction.expect(&key, expect);
        }
        let record = RolloutRecord { last_good: self.good_version(reading), ..record };
        transaction = transaction.put(&plan_key()?, encoded(&record)?);
        // The records of deleted groups are removed.
        let settings = reading.snapshot.settings();
        let present = settings.groups(record.schedule);
        for name in reading.groups.keys().filter(|name| present.iter().all(|group| group.name != **name)) {
            transaction = transaction.delete(&group_key(name)?);
        }
        let is_new = readable(&reading.snapshot.plan).is_none_or(|before| before.epoch != record.epoch);
        let (kind, message) = match is_new {
            true => {
                let RolloutRecord { epoch, version, schedule, .. } = &record;
                ("rollout.epoch", format!("epoch {epoch} began: {version} ({schedule})"))
            }
            false => ("rollout.level", format!("feature level {} is needed of every server", record.level)),
        };
        let (key, value) = self.events.entry(self.event(kind, "rollout", &message))?;
        self.backend.transact(transaction.put(&key, value)).await?;
        tracing::info!(target: "audit", message, "the plan of the rollout changed");
        Ok(())
    }

    /// Whether the store has been unreachable for so long that this server's registration has expired: hosts that
    /// connected before then should move to another server.
    pub(crate) fn should_disconnect(&self, connected: Instant) -> bool {
        self.fleet.peek(|view| {
            let unreachable =
                view.last_store_contact.filter(|contact| contact.elapsed() > crate::server_registry::TTL);
            unreachable.is_some_and(|since| connected < since) && view.snapshot.servers.len() > 1
        })
    }

    /// Since when the rollout has been paused, as the store has it.
    pub(crate) async fn paused_since(&self) -> Result<Option<Timestamp>> {
        Ok(self.read_store().await?.snapshot.rollout().and_then(|plan| plan.paused))
    }

    /// The operators' settings and the current rollout.
    pub(crate) fn settings(&self) -> (ClusterMaintenanceConfig, Option<RolloutRecord>) {
        let view = self.fleet.view();
        (view.snapshot.settings(), view.snapshot.rollout().cloned())
    }

    /// An event with this server as its actor.
    fn event(&self, kind: &str, subject: &str, message: &str) -> Event {
        Event::new(kind, format!("{SERVER} {}", self.server), subject, message)
    }
}

#[cfg(test)]
mod tests;
