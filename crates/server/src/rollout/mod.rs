//! What operators do about rollouts, and what they see of them: on top of the fleet's state, which decides and stores
//! by itself. Any number of servers do so at once; compare and swap keeps them from doing anything twice.

mod expiry;
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
pub(crate) use host_status::{HostPosition, HostStatuses};
pub(crate) use operator::OperatorError;
pub(crate) use status::HostStatus;

/// How often the store is read, and what has happened since is decided upon: often enough for a rollout to move in
/// seconds, and rarely enough that hosts share the writes of their group.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How often others may be quicker to begin an epoch before it is left to the next reading.
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
        Arc::new(Self { backend, fleet, events, server, features, now })
    }

    /// Reads the store every second, and begins an epoch when one is due, until the server stops.
    pub(crate) async fn poll(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let (mut trouble, mut is_regular, mut next) = (None, true, Instant::now());
        loop {
            let read = async {
                let error = self.read_for_owner(is_regular).await.err().map(|error| error.to_string());
                if let Some(error) = error.as_ref().filter(|_| trouble != error) {
                    tracing::warn!(error, "the store could not be read; it is tried again every second");
                }
                trouble = error;
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
                () = self.wanted_soon() => false,
                _ = stop.wait_for(|stop| *stop) => return,
            };
        }
    }

    /// Servers that were refused by the same change do not all come back at once.
    async fn wanted_soon(&self) {
        self.fleet.wants_poll().await;
        tokio::time::sleep(Duration::from_millis(rand::random_range(10..100))).await;
    }

    async fn read_for_owner(&self, is_regular: bool) -> Result<()> {
        for _ in 0..=MAX_CONFLICTS {
            let asked = Instant::now();
            let reading = self.read_store().await?;
            let is_begun = self.begin_if_due(&reading).await?;
            self.fleet.tick(reading, asked, is_regular).await;
            if !is_begun {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads what is stored, begins a new epoch if operators changed what calls for one, and returns when this
    /// server answers by that.
    pub(crate) async fn look(&self) -> Result<()> {
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

    /// Begins the epoch that is due, if one is; whether the store is to be read again.
    async fn begin_if_due(&self, reading: &StoreReading) -> Result<bool> {
        let Some(record) = reading.snapshot.due_plan(self.fleet.clock()) else { return Ok(false) };
        match self.begin(record, reading).await {
            Ok(()) | Err(Error::Conflict { .. }) => Ok(true),
            Err(other) => Err(other),
        }
    }

    /// Begins an epoch, or notes another level in this one, if all is still as it was read.
    async fn begin(&self, record: RolloutRecord, reading: &StoreReading) -> Result<()> {
        let mut transaction = Transaction::new();
        for (key, expect) in reading.snapshot.unchanged()? {
            transaction = transaction.expect(&key, expect);
        }
        transaction = transaction.put(&plan_key()?, encoded(&record)?);
        // Groups that are no more leave nothing behind.
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

    /// Whether the store has been silent for so long that other servers no longer count on this one: what
    /// was connected before then is better off with one of them.
    pub(crate) fn should_disconnect(&self, connected: Instant) -> bool {
        self.fleet.peek(|view| {
            let silent = view.heard.filter(|heard| heard.elapsed() > crate::server_registry::TTL);
            silent.is_some_and(|since| connected < since) && view.snapshot.servers.len() > 1
        })
    }

    /// What operators said last, and what is rolled out.
    pub(crate) fn said(&self) -> (ClusterMaintenanceConfig, Option<RolloutRecord>) {
        let view = self.fleet.view();
        (view.snapshot.settings(), view.snapshot.rollout().cloned())
    }

    /// An event that this server tells of.
    fn event(&self, kind: &str, subject: &str, message: &str) -> Event {
        Event::new(kind, format!("{SERVER} {}", self.server), subject, message)
    }
}

#[cfg(test)]
mod tests;
