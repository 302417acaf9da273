//! The event log of backends that have one process, which are SQLite and memory: watchers read it by cursor. Bounded,
//! so a watcher that falls too far behind is told that it lost events.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream;
use tokio::sync::watch;

use crate::{Change, Error, Event, KeyRange, Result, Revision, Watch};

/// The events, and bytes of events, that are kept for slow watchers. A watcher that needs older ones reloads.
const MAX_EVENTS: usize = 65_536;
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How many events a watcher takes from the log at once.
const CHUNK: usize = 256;

/// The recent events of a store with a single process. Each watcher reads them at its own pace, without a buffer.
#[derive(Debug)]
pub(crate) struct WatchLog {
    recent: Arc<Mutex<Recent>>,
    tip: watch::Sender<Revision>,
}

#[derive(Debug)]
struct Recent {
    events: VecDeque<Event>,
    bytes: usize,
    /// Events up to here are gone.
    forgotten: Revision,
    max_events: usize,
}

impl WatchLog {
    /// The log of a store at `revision`, without earlier events.
    pub(crate) fn starting_at(revision: Revision) -> Self {
        Self::with_capacity(revision, MAX_EVENTS)
    }

    pub(crate) fn with_capacity(revision: Revision, max_events: usize) -> Self {
        let recent = Recent { events: VecDeque::new(), bytes: 0, forgotten: revision, max_events };
        Self { recent: Arc::new(Mutex::new(recent)), tip: watch::Sender::new(revision) }
    }

    /// Adds what was just committed, in the order of revisions.
    pub(crate) fn publish(&self, events: impl IntoIterator<Item = Event>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = None;
        for event in events {
            last = Some(event.revision);
            recent.push(event);
        }
        drop(recent);
        if let Some(revision) = last {
            self.tip.send_replace(revision);
        }
    }

    pub(crate) fn watch(&self, range: KeyRange, after: Revision) -> Watch {
        let cursor = Cursor {
            recent: self.recent.clone(),
            tip: self.tip.subscribe(),
            range,
            after,
            ready: VecDeque::new(),
        };
        Watch::new(stream::unfold(Some(cursor), |cursor| async move {
            let mut cursor = cursor?;
            match cursor.next().await {
                Ok(events) => Some((Ok(events), Some(cursor))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}

impl Recent {
    fn push(&mut self, event: Event) {
        self.bytes += size(&event);
        self.events.push_back(event);
        while self.events.len() > self.max_events || self.bytes > MAX_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= size(&oldest);
            self.forgotten = oldest.revision;
        }
    }
}

fn size(event: &Event) -> usize {
    let value = match &event.change {
        Change::Put(item) => item.value.len(),
        Change::Delete(_) => 0,
    };
    event.key().as_str().len() + value
}

struct Cursor {
    recent: Arc<Mutex<Recent>>,
    tip: watch::Receiver<Revision>,
    range: KeyRange,
    after: Revision,
    ready: VecDeque<Event>,
}

impl Cursor {
    async fn next(&mut self) -> Result<VecDeque<Event>> {
        loop {
            if !self.ready.is_empty() {
                return Ok(std::mem::take(&mut self.ready));
            }
            self.tip.borrow_and_update();
            if !self.fill()? {
                self.tip.changed().await.map_err(|_| Error::Closed)?;
            }
        }
    }

    /// Takes the next whole revisions out of the log; whether it moved on.
    fn fill(&mut self) -> Result<bool> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if self.after < recent.forgotten {
            return Err(Error::WatchLost { after: self.after });
        }
        let from = recent.events.partition_point(|event| event.revision <= self.after);
        let before = self.after;
        for event in recent.events.range(from..) {
            if self.ready.len() >= CHUNK && event.revision > self.after {
                break;
            }
            self.after = event.revision;
            if self.range.contains(event.key()) {
                self.ready.push_back(event.clone());
            }
        }
        Ok(self.after > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn event(revision: u64) -> Event {
        let key = Key::new(format!("/k/{revision}")).unwrap();
        Event { revision: Revision(revision), change: Change::Delete(key) }
    }

    #[tokio::test]
    async fn a_watcher_that_is_too_far_behind_is_told() {
        let log = WatchLog::with_capacity(Revision(0), 10);
        let mut slow = log.watch(KeyRange::all(), Revision(0));
        log.publish((1..=10).map(event));
        assert_eq!(slow.next().await.unwrap().revision, Revision(1));
        log.publish((11..=30).map(event));
        let mut last = 1;
        let lost = loop {
            match slow.next().await {
                Ok(event) => {
                    last += 1;
                    assert_eq!(
                        event.revision,
                        Revision(last),
                        "nothing may be missing before the loss is told"
                    );
                }
                Err(error) => break error,
            }
        };
        assert_eq!(lost, Error::WatchLost { after: Revision(last) });
        let mut fresh = log.watch(KeyRange::all(), Revision(20));
        assert_eq!(fresh.next().await.unwrap().revision, Revision(21));
    }

    #[tokio::test]
    async fn a_revision_cut_in_half_by_the_limit_is_lost_whole() {
        let log = WatchLog::with_capacity(Revision(0), 2);
        log.publish([event(1), event(1), event(1)]);
        let mut watch = log.watch(KeyRange::all(), Revision(0));
        assert_eq!(watch.next().await, Err(Error::WatchLost { after: Revision(0) }));
    }
}
