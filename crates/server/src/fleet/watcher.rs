//! Loads every record of hosts, then follows the whole store. Everything comes by one watch, in the order of the
//! store: when the record of a group has come, so have all hosts that were written before it.

use std::sync::Arc;
use std::time::Duration;

use refit_backend::{Event, Item, KeyRange, MAX_PAGE_ITEMS, Result, Revision, SharedBackend};
use tokio::sync::{Notify, mpsc, watch};

use super::host_records::{self, HostEvent, HostRead, HostRecords};
use super::store_reading::StoreChange;

/// How long to wait before the store is asked again for what a watch lost.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// What the watch tells the owner of the fleet's state.
#[derive(Debug)]
pub(crate) enum WatchMessage {
    /// Everything was read, as of that revision at least.
    Loaded(Box<HostRecords>, Revision),
    /// These changed, and everything up to that revision has been told.
    Changes { hosts: Vec<HostEvent>, others: Vec<(StoreChange, Revision)>, applied: Revision },
}

/// Loads and follows, until the server stops or the owner is gone.
pub(crate) struct Watcher {
    pub(crate) backend: SharedBackend,
    pub(crate) owner: mpsc::Sender<WatchMessage>,
    /// Told when the store has gone back in time: what was loaded is another store's.
    pub(crate) reload: Arc<Notify>,
}

impl Watcher {
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                ended = self.load_and_watch() => match ended {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(%error, "lost the watch on the store; reading every host again"),
                },
                () = self.reload.notified() => {
                    tracing::warn!("the store has gone back in time; reading every host again");
                }
                _ = stop.wait_for(|stop| *stop) => return,
            }
            tokio::select! {
                () = tokio::time::sleep(RELOAD_PAUSE) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn load_and_watch(&self) -> Result<()> {
        let (records, since) = self.load().await?;
        if self.owner.send(WatchMessage::Loaded(Box::new(records), since)).await.is_err() {
            return Ok(());
        }
        let mut watch = self.backend.watch(&KeyRange::all(), since).await?;
        loop {
            let events = watch.next_batch().await?;
            let Some(changes) = changes(&events) else { continue };
            if self.owner.send(changes).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Reads all pages. They are of different moments: what changed in between is told by the watch, which begins
    /// at the first of them.
    async fn load(&self) -> Result<(HostRecords, Revision)> {
        let (mut rest, mut records, mut since) = (host_records::range()?, HostRecords::default(), None);
        loop {
            let page = self.backend.range(&rest, MAX_PAGE_ITEMS).await?;
            since.get_or_insert(page.revision);
            let last = page.items.last().map(|item| item.key.clone());
            // Parsing a million records takes seconds: not on the threads that answer.
            let parsed = tokio::task::spawn_blocking(move || add(records, &page.items)).await;
            records = parsed.map_err(|error| refit_backend::Error::Invalid(error.to_string()))?;
            match last {
                Some(last) if page.more => rest = rest.after(&last),
                _ => return Ok((records, since.unwrap_or_default())),
            }
        }
    }
}

fn add(mut records: HostRecords, items: &[Item]) -> HostRecords {
    for item in items {
        let Some(host) = host_records::host_of(&item.key) else {
            tracing::warn!(key = %item.key, "this is not the key of a host");
            continue;
        };
        match HostRead::of(item) {
            HostRead::Record(instance) => drop(records.set(host, instance, item.revision)),
            HostRead::Unreadable(why) => drop(records.set_unreadable(host, why, item.revision)),
        }
    }
    records
}

fn changes(events: &[Event]) -> Option<WatchMessage> {
    let applied = events.last()?.revision;
    let hosts = events.iter().filter_map(HostEvent::of).collect();
    let others = events.iter().filter_map(StoreChange::of).collect();
    Some(WatchMessage::Changes { hosts, others, applied })
}
