//! The audit log: who changed what, and what changed by itself. It is kept in the store, so that every server shows the
//! same.

mod audited_write;
mod differences;
mod follower;
mod retention;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Backoff, Error, Item, Key, KeyRange, Result, SharedBackend};
use serde::{Deserialize, Serialize};

pub(crate) use audited_write::Change;
pub(crate) use differences::Difference;
pub(crate) use follower::Follower;
pub(crate) use retention::Bounds;

const PREFIX: &str = "/events/v1/default";

/// Time limit for writing an event outside of a transaction.
const TRY_FOR: Duration = Duration::from_secs(5);

/// The actor of events that no person caused.
pub(crate) const SERVER: &str = "server";

/// One entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Unique, and in the order of time; given when the event is entered.
    pub(crate) id: String,
    /// Given when the event is entered.
    pub(crate) at: Timestamp,
    /// As in `resource.updated`.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    /// Who did it.
    pub(crate) actor: String,
    /// What it was done to.
    pub(crate) subject: String,
    /// In words.
    pub(crate) message: String,
    /// The changed fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) differences: Vec<Difference>,
}

impl Event {
    /// An event without id and time yet. It must not contain a secret: every role may read it.
    pub(crate) fn new(
        event_type: &str,
        actor: impl Into<String>,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            id: String::new(),
            at: Timestamp::UNIX_EPOCH,
            event_type: event_type.into(),
            actor: actor.into(),
            subject: subject.into(),
            message: message.into(),
            differences: Vec::new(),
        }
    }

    /// The event of an item. An unreadable one is shown as such: the log has no silent gaps.
    fn stored(item: &Item) -> Self {
        serde_json::from_slice(&item.value).unwrap_or_else(|error| {
            let id = id_in(&item.key);
            let micros = id.split('-').next().and_then(|micros| micros.parse().ok());
            let at = micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
            let message = format!("what is stored of this event cannot be read: {error}");
            let (id, at) = (id.to_owned(), at.unwrap_or(Timestamp::UNIX_EPOCH));
            Self { id, at, ..Self::new("unreadable", "", item.key.as_str(), message) }
        })
    }
}

fn id_in(key: &Key) -> &str {
    key.as_str().get(PREFIX.len() + 1..).unwrap_or_default()
}

/// The first key that an event of that moment can have. Sixteen digits last until the year 2286.
fn key_at(at: Timestamp) -> Result<Key> {
    Key::new(format!("{PREFIX}/{:016}", at.as_microsecond().max(0)))
}

/// Where events since then are stored; all of them without a moment.
fn range(since: Option<Timestamp>) -> Result<KeyRange> {
    let prefix = Key::new(PREFIX)?;
    Ok(match since {
        // A prefix ends before the next byte after its `/`.
        Some(since) => KeyRange::between(&key_at(since)?, &Key::new(format!("{PREFIX}0"))?),
        None => KeyRange::below(&prefix),
    })
}

/// Some events in the order of time.
#[derive(Debug)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<Event>,
    /// The id after which to continue, if there are more.
    pub(crate) next: Option<String>,
}

/// The history of the cluster.
#[derive(Debug)]
pub(crate) struct Events {
    backend: SharedBackend,
    now: fn() -> Timestamp,
    /// Distinguishes this server's ids from those of others in the same microsecond.
    suffix: String,
    /// The time in the last id, in microseconds: ids of one server never share one.
    last: AtomicI64,
}

impl Events {
    pub(crate) fn new(backend: SharedBackend, now: fn() -> Timestamp) -> Self {
        let mut suffix = uuid::Uuid::new_v4().simple().to_string();
        suffix.truncate(12);
        Self { backend, now, suffix, last: AtomicI64::new(0) }
    }

    /// The key and value to add to the transaction of a change, so that both are stored together. Make a new one for
    /// each attempt, after reading the resource: the events of a resource are then in the order of its changes.
    pub(crate) fn entry(&self, event: Event) -> Result<(Key, Vec<u8>)> {
        let now = (self.now)().as_microsecond().max(0);
        let next = |last: i64| Some(now.max(last.saturating_add(1)));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        let micros = now.max(last.saturating_add(1));
        let at = Timestamp::from_microsecond(micros).map_err(|error| Error::Invalid(error.to_string()))?;
        let id = format!("{micros:016}-{}", self.suffix);
        let key = Key::new(PREFIX)?.child(&id)?;
        let event = Event { id, at, ..event };
        let value = serde_json::to_vec(&event).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok((key, value))
    }

    /// Writes an event on its own, with retry while the store is unreachable.
    pub(crate) async fn record(&self, event: Event) -> Result<()> {
        let (key, value) = self.entry(event)?;
        let mut backoff = Backoff::of(TRY_FOR);
        loop {
            match self.backend.put(&key, value.clone().into()).await {
                // Writing the same key again is idempotent.
                Err(Error::Unavailable { .. }) if backoff.pause().await => {}
                other => return other.map(drop),
            }
        }
    }

    /// Writes the event of a run of migrations, which is many transactions and not one: the event belongs to none
    /// of them. A failure is only logged, and a caller that hangs up does not keep it from being written.
    /// Whatever is one transaction has its [`entry`](Self::entry) in it instead.
    pub(crate) async fn note(self: &Arc<Self>, event: Event) {
        let events = self.clone();
        let writing = tokio::spawn(async move {
            let (event_type, subject) = (event.event_type.clone(), event.subject.clone());
            if let Err(error) = events.record(event).await {
                tracing::error!(%error, event_type, subject, "could not store an audit event; it is missing from the history");
            }
        });
        // The task does not panic and is not aborted.
        let _ = writing.await;
    }

    /// Up to `limit` events since then, after the one with the id `after`.
    pub(crate) async fn page(
        &self,
        since: Option<Timestamp>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<EventPage> {
        let mut range = range(since)?;
        if let Some(id) = after {
            range = range.after(&Key::new(PREFIX)?.child(id)?);
        }
        let page = self.backend.range(&range, limit).await?;
        let next = page.items.last().filter(|_| page.more).map(|item| id_in(&item.key).to_owned());
        Ok(EventPage { events: page.items.iter().map(Event::stored).collect(), next })
    }
}

#[cfg(test)]
mod tests;
