//! Loads every host record, then watches the whole store. One watch delivers everything in the order of revisions: when
//! a group's record arrives, all hosts that were written before it have arrived.

use std::sync::Arc;

use refit_backend::{Event, Item, KeyRange, Result, Revision, SharedBackend, follow};
use tokio::sync::{Notify, mpsc, watch};

use super::host_records::{self, HostEvent, HostRead, HostRecords};
use super::store_reading::StoreChange;

/// A message from the watch to the owner of the fleet's state.
#[derive(Debug)]
pub(crate) enum WatchMessage {
    /// Everything was read, as of that revision at least.
    Loaded(Box<HostRecords>, Revision),
    /// Changes; everything up to the revision `applied` has been delivered.
    Changes { hosts: Vec<HostEvent>, others: Vec<(StoreChange, Revision)>, applied: Revision },
}

/// Loads and follows, until the server stops or the owner is gone.
pub(crate) struct Watcher {
    pub(crate) backend: SharedBackend,
    pub(crate) owner: mpsc::Sender<WatchMessage>,
    /// Notified when the store was restored from a backup: everything must be loaded again.
    pub(crate) reload: Arc<Notify>,
}

impl Watcher {
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) {
        let load_and_watch = || async {
            tokio::select! {
                ended = self.load_and_watch() => ended.map_err(|error| error.to_string()),
                () = self.reload.notified() => Err("the store was restored to an earlier revision".to_owned()),
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

    /// Reads all pages. They have different revisions: the watch begins at the first one and delivers what changed since.
    async fn load(&self) -> Result<(HostRecords, Revision)> {
        let (mut scan, mut records) = (self.backend.scan(host_records::range()?), HostRecords::default());
        while let Some(items) = scan.next_page().await? {
            // Parsing a million records takes seconds, so it runs on a blocking thread.
            let parsed = tokio::task::spawn_blocking(move || add(records, &items)).await;
            records = parsed.map_err(|error| refit_backend::Error::Invalid(error.to_string()))?;
        }
        Ok((records, scan.since()))
    }
}

fn add(mut records: HostRecords, items: &[Item]) -> HostRecords {
    for item in items {
        let Some(host) = host_records::host_of(&item.key) else {
            tracing::warn!(key = %item.key, "ignored a key that is not the key of a host");
            continue;
        };
        match HostRead::of(item) {
            HostRead::Record(host_record) => drop(records.set(host, host_record, item.revision)),
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
