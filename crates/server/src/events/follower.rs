//! Follows the audit log: first its history, then new events by watch, each exactly once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Backoff, Change, Error, Item, KeyRange, Result, Revision, Watch};

use super::{Event, Events, range};

/// Events that a follower buffers.
const PAGE: usize = 200;
/// How long the store may be unreachable before a follower fails.
const TRY_FOR: Duration = Duration::from_secs(30);

/// Returns each event since some moment once, and then each new one.
///
/// Events of several servers may be stored out of the order of their ids. So the follower tracks what it has returned
/// by store revision: after a lost watch it reads the history again and finds missed events at any position.
pub(crate) struct Follower {
    events: Arc<Events>,
    range: KeyRange,
    /// Every event stored up to here was returned.
    given: Revision,
    /// The later events that were returned.
    beyond: BTreeSet<String>,
    ready: VecDeque<Event>,
    source: Source,
}

enum Source {
    /// The history at one revision; later events come by watch.
    History {
        rest: KeyRange,
        until: Option<Revision>,
    },
    Watch(Watch),
}

impl Events {
    /// Follows the history from that moment, or from its start.
    pub(crate) fn follow(self: Arc<Self>, since: Option<Timestamp>) -> Result<Follower> {
        let range = range(since)?;
        let source = Source::History { rest: range.clone(), until: None };
        let (beyond, ready) = (BTreeSet::new(), VecDeque::new());
        Ok(Follower { events: self, range, given: Revision(0), beyond, ready, source })
    }
}

impl Follower {
    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Result<Event> {
        let mut backoff: Option<Backoff> = None;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match self.fill().await {
                Ok(()) => backoff = None,
                Err(Error::Closed) => return Err(Error::Closed),
                Err(error) => {
                    self.source = Source::History { rest: self.range.clone(), until: None };
                    if matches!(error, Error::WatchLost { .. }) {
                        continue;
                    }
                    if !backoff.get_or_insert_with(|| Backoff::of(TRY_FOR)).pause().await {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Takes a step: a page of the history, or a change.
    async fn fill(&mut self) -> Result<()> {
        match &mut self.source {
            Source::History { rest, until } => {
                let page = self.events.backend.range(rest, PAGE).await?;
                let moment = *until.get_or_insert(page.revision);
                let next = page.items.last().filter(|_| page.more).map(|last| rest.after(&last.key));
                let new = page.items.iter().filter(|item| item.revision <= moment);
                let new: Vec<&Item> = new.filter(|item| item.revision > self.given).collect();
                match next {
                    Some(next) => *rest = next,
                    None => {
                        let watch = self.events.backend.watch(&self.range, moment).await?;
                        self.source = Source::Watch(watch);
                    }
                }
                for item in new {
                    let event = Event::stored(item);
                    if self.beyond.insert(event.id.clone()) {
                        self.ready.push_back(event);
                    }
                }
                if matches!(self.source, Source::Watch(_)) {
                    (self.given, self.beyond) = (moment, BTreeSet::new());
                }
            }
            Source::Watch(watch) => {
                let event = watch.next().await?;
                // More events of the same transaction may follow.
                let complete = Revision(event.revision.0.saturating_sub(1));
                if complete > self.given {
                    (self.given, self.beyond) = (complete, BTreeSet::new());
                }
                if let Change::Put(item) = &event.change {
                    let event = Event::stored(item);
                    if self.beyond.insert(event.id.clone()) {
                        self.ready.push_back(event);
                    }
                }
            }
        }
        Ok(())
    }
}
