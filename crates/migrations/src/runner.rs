//! Applies the outstanding migrations in order, on one server at a time. The server starts a run when it starts, and when
//! an operator asks for it.

use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Change, Item, SharedBackend};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::history::{Record, history_key, history_range};
use crate::lock::{self, Lock};
use crate::outcomes::{Observer, Outcomes};
use crate::registry::Migration;
use crate::{MigrationError, Registry, RunError};

/// How long a server that died or stalled keeps others from going on. Long enough for a busy store to
/// answer three keep-alives in.
pub const LOCK_TTL: Duration = Duration::from_secs(10);

/// Where a migration stands, as the metric says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Not applied yet.
    Pending,
    /// This server is applying it.
    Running,
    /// It was applied, here or elsewhere.
    Success,
    /// It failed, here or elsewhere, and nobody has applied it since.
    Failure,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 4] = [Self::Pending, Self::Running, Self::Success, Self::Failure];

    /// The word in the metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The migrations that this server applied.
    pub applied: Vec<u32>,
    /// Those that it found applied.
    pub found: Vec<u32>,
}

/// Applies what is outstanding: once when the server starts, and again when an operator asks for it.
pub struct Runner {
    backend: SharedBackend,
    registry: Registry,
    server: String,
    now: fn() -> Timestamp,
    outcomes: Outcomes,
    stop: watch::Receiver<bool>,
    in_flight: Mutex<()>,
}

impl Runner {
    /// A runner of the migrations in `registry`. `server` is the name in the history, `observe` is told
    /// of every change of an outcome, and a `true` in `stop` ends a run at its next step.
    pub fn new(
        backend: SharedBackend,
        registry: Registry,
        server: String,
        now: fn() -> Timestamp,
        observe: Observer,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let outcomes = Outcomes::new(&registry, observe);
        Self { backend, registry, server, now, outcomes, stop, in_flight: Mutex::new(()) }
    }

    /// Applies outstanding migrations in order, each at most once, and stops at the first that fails.
    pub async fn run(&self) -> Result<Summary, RunError> {
        let Ok(_only_one) = self.in_flight.try_lock() else {
            return Err(RunError::InFlight { by: "this server".into() });
        };
        let mut stop = self.stop.clone();
        let stopped = async {
            // An error means that nobody can ask any more.
            if stop.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let mut held = None;
        let outcome = tokio::select! {
            outcome = self.run_all(&mut held) => outcome,
            () = stopped => Err(RunError::Stopped),
        };
        self.outcomes.stop_running();
        if let Some(lease) = held {
            lock::release(&self.backend, lease).await;
        }
        outcome
    }

    /// Like [`Runner::run`], refused while any server is at it.
    pub async fn apply(&self) -> Result<Summary, RunError> {
        if let Some(by) = lock::holder(&self.backend).await? {
            return Err(RunError::InFlight { by: format!("server {by}") });
        }
        self.run().await
    }

    /// Learns from the history what other servers applied, until the server stops.
    pub async fn follow_history(&self) {
        let what = "the history of migrations";
        refit_backend::follow(what, self.stop.clone(), || self.watch_history()).await;
    }

    async fn watch_history(&self) -> Result<(), RunError> {
        let snapshot = self.backend.read(&[]).await?.revision;
        for migration in self.registry.iter() {
            let item = self.backend.get(&history_key(migration.number)).await?;
            self.learn(migration, item.as_ref());
        }
        let mut watch = self.backend.watch(&history_range()?, snapshot).await?;
        loop {
            let change = watch.next().await?.change;
            let (key, item) = match &change {
                Change::Put(item) => (&item.key, Some(item)),
                Change::Delete(key) => (key, None),
            };
            if let Some(migration) = self.registry.iter().find(|known| history_key(known.number) == *key) {
                self.learn(migration, item);
            }
        }
    }

    /// A record that cannot be read, or is of another migration under this number, changes nothing: the next run
    /// reports it.
    fn learn(&self, migration: &Migration, item: Option<&Item>) {
        let Some(item) = item else { return self.outcomes.learn(migration.number, None) };
        let readable = Record::decode(item).and_then(|record| {
            record.check_unaltered(migration)?;
            Ok(record.success)
        });
        match readable {
            Ok(success) => self.outcomes.learn(migration.number, Some(success)),
            Err(error) => {
                tracing::warn!(number = migration.number, %error, "cannot tell how a migration stands")
            }
        }
    }

    async fn run_all(&self, held: &mut Option<refit_backend::Lease>) -> Result<Summary, RunError> {
        for migration in self.registry.iter() {
            if let Some(record) = self.record(migration).await? {
                record.check_unaltered(migration)?;
            }
        }
        let mut summary = Summary::default();
        for migration in self.registry.iter() {
            if self.apply_one(migration, held).await? {
                summary.applied.push(migration.number);
            } else {
                summary.found.push(migration.number);
            }
            self.outcomes.set(migration.number, Outcome::Success);
        }
        Ok(summary)
    }

    /// Whether it was applied here; `false` when somebody else had done it.
    async fn apply_one(
        &self,
        migration: &Migration,
        held: &mut Option<refit_backend::Lease>,
    ) -> Result<bool, RunError> {
        loop {
            if self.is_done(migration).await? {
                return Ok(false);
            }
            let Some(lock) = Lock::try_take(&self.backend, migration.number, &self.server, LOCK_TTL).await?
            else {
                Lock::wait_until_free(&self.backend, migration.number).await?;
                continue;
            };
            *held = Some(lock.lease());
            if self.is_done(migration).await? {
                lock.abandon().await;
                *held = None;
                return Ok(false);
            }
            self.outcomes.set(migration.number, Outcome::Running);
            let lease = lock.lease();
            let outcome = self.run_locked(migration, lock).await;
            lock::release(&self.backend, lease).await;
            *held = None;
            match outcome {
                Ok(()) => return Ok(true),
                // Whoever has the lock now decides what becomes of it; wait for that.
                Err(MigrationError::LockLost) => {
                    self.outcomes.set(migration.number, Outcome::Pending);
                    tracing::warn!(
                        number = migration.number,
                        "lost the lock of a migration; waiting for the server that has it"
                    );
                }
                // The answer to the last write may have been lost, and not the write.
                Err(_) if self.is_done(migration).await? => return Ok(true),
                Err(source) => {
                    self.outcomes.set(migration.number, Outcome::Failure);
                    return Err(RunError::Failed {
                        number: migration.number,
                        name: migration.name.into(),
                        source,
                    });
                }
            }
        }
    }

    async fn run_locked(&self, migration: &Migration, lock: Lock) -> Result<(), MigrationError> {
        let (number, name) = (migration.number, migration.name);
        tracing::info!(number, name, "applying a migration");
        let keep = Lock::keep(self.backend.clone(), lock.lease());
        let guarded = lock.into_guarded();
        let started = Instant::now();
        let outcome = tokio::select! {
            outcome = (migration.run)(&guarded) => outcome,
            () = keep => Err(MigrationError::LockLost),
        };
        if matches!(outcome, Err(MigrationError::LockLost)) {
            return outcome.map(|_| ());
        }
        let record = Record::new(migration, &self.server, (self.now)(), started.elapsed(), &outcome);
        guarded.finish(&history_key(number), record.encode()).await?;
        match &outcome {
            Ok(message) => tracing::info!(number, name, message, "applied a migration"),
            Err(error) => tracing::error!(number, name, %error, "a migration failed"),
        }
        outcome.map(|_| ())
    }

    async fn is_done(&self, migration: &Migration) -> Result<bool, RunError> {
        let Some(record) = self.record(migration).await? else { return Ok(false) };
        record.check_unaltered(migration)?;
        Ok(record.success)
    }

    async fn record(&self, migration: &Migration) -> Result<Option<Record>, RunError> {
        let item = self.backend.get(&history_key(migration.number)).await?;
        item.as_ref().map(Record::decode).transpose()
    }
}
