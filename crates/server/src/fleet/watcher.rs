//! Loads every record of hosts, then follows the whole store. Everything comes by one watch, in the order of the
//! store: when the record of a group has come, so have all hosts that were written before it.

use std::sync::Arc;

use refit_backend::{Event, Item, KeyRange, Result, Revision, SharedBackend, follow};
use tokio::sync::{Notify, mpsc, watch};

use super::host_records::{self, HostEvent, HostRead, HostRecords};
use super::store_reading::StoreChange;

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
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) {
        let load_and_watch = || async {
            tokio::select! {
                ended = self.load_and_watch() => ended.map_err(|error| error.to_string()),
                () = self.reload.notified() => Err("the store has gone back in time".to_owned()),
            }
        };
        follow("every host", stop, load_and_watch).await;
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
        let (mut scan, mut records) = (self.backend.scan(host_records::range()?), HostRecords::default());
        while let Some(items) = scan.next_page().await? {
            // Parsing a million records takes seconds: not on the threads that answer.
            let parsed = tokio::task::spawn_blocking(move || add(records, &items)).await;
            records = parsed.map_err(|error| refit_backend::Error::Invalid(error.to_string()))?;
        }
        Ok((records, scan.since()))
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
