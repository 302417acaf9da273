//! Deletes audit events beyond the age and count limits. Runs in the background on every server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_backend::{Change, Key, MAX_TRANSACTION_KEYS, Result, Revision, Transaction, follow};
use tokio::sync::watch;

use super::{Events, key_at, range};

/// Reviews and audits cover a quarter.
const LONGEST_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// At about a kilobyte each, the history stays around ten megabytes of a store that may be an etcd, and is
/// listed in ten pages.
const MOST: usize = 10_000;
/// The limits may be exceeded in between.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How much of the history is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Older events go.
    pub(crate) age: SignedDuration,
    /// The oldest go when there are more.
    pub(crate) most: usize,
    /// How often events are deleted.
    pub(crate) every: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { age: LONGEST_KEPT, most: MOST, every: LOOK_EVERY }
    }
}

impl Bounds {
    /// Which of these keys, in the order of time, are to go.
    fn beyond(&self, stored: &BTreeSet<Key>, now: Timestamp) -> Result<Vec<Key>> {
        let oldest_kept = key_at(now.checked_sub(self.age).unwrap_or(Timestamp::UNIX_EPOCH))?;
        let too_many = stored.len().saturating_sub(self.most);
        let goes = |(n, key): &(usize, &Key)| *n < too_many || **key < oldest_kept;
        Ok(stored.iter().enumerate().take_while(goes).map(|(_, key)| key.clone()).collect())
    }
}

impl Events {
    /// Keeps the history within its bounds until the server stops. Every server does so: deletions are
    /// idempotent.
    pub(crate) async fn prune(self: Arc<Self>, bounds: Bounds, stop: watch::Receiver<bool>) {
        follow("the history of events", stop, || self.keep_within(bounds)).await;
    }

    /// Reads the history once and then follows it by watch; it is read again only after a lost watch.
    async fn keep_within(&self, bounds: Bounds) -> Result<()> {
        let (mut stored, since) = self.keys().await?;
        let mut watch = self.backend.watch(&range(None)?, since).await?;
        let mut ticks = tokio::time::interval(bounds.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = watch.next() => match event?.change {
                    Change::Put(item) => _ = stored.insert(item.key),
                    Change::Delete(key) => _ = stored.remove(&key),
                },
                _ = ticks.tick() => {
                    let beyond = bounds.beyond(&stored, (self.now)())?;
                    // The watch reports the deletions.
                    for batch in beyond.chunks(MAX_TRANSACTION_KEYS) {
                        let delete = batch.iter().fold(Transaction::new(), Transaction::delete);
                        self.backend.transact(delete).await?;
                    }
                }
            }
        }
    }

    /// The keys of all events, and the revision to watch after.
    async fn keys(&self) -> Result<(BTreeSet<Key>, Revision)> {
        let (mut scan, mut keys) = (self.backend.scan(range(None)?), BTreeSet::new());
        while let Some(items) = scan.next_page().await? {
            keys.extend(items.into_iter().map(|item| item.key));
        }
        Ok((keys, scan.since()))
    }
}
