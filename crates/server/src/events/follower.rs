//! Follows the audit log: first its history, then new events by watch, each exactly once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Backoff, Change, Error, Item, KeyRange, Result, Revision, Watch};

use super::{Event, Events, range};

/// What a follower reads at once; more is not held for one that is slow.
const PAGE: usize = 200;
/// How long the store may be away before a follower is told.
const TRY_FOR: Duration = Duration::from_secs(30);

/// Gives each event since some moment once, and then each new one as it comes.
///
/// Events of several servers need not be stored in the order of their ids. So what was given is known by
/// the revision of the store: one that a watch has lost is found when the history is read again, wherever
/// it stands.
pub(crate) struct Follower {
    events: Arc<Events>,
    range: KeyRange,
    /// Everything that was stored up to here was given.
    given: Revision,
    /// What was given of what was stored later.
    beyond: BTreeSet<String>,
    ready: VecDeque<Event>,
    source: Source,
}

enum Source {
    /// The history, as it is at one revision; what comes later comes by watch.
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
        let mut patience: Option<Backoff> = None;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match self.fill().await {
                Ok(()) => patience = None,
                Err(Error::Closed) => return Err(Error::Closed),
                Err(error) => {
                    self.source = Source::History { rest: self.range.clone(), until: None };
                    if matches!(error, Error::WatchLost { .. }) {
                        continue;
                    }
                    if !patience.get_or_insert_with(|| Backoff::of(TRY_FOR)).pause().await {
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
                // Others of the same transaction may be still to come.
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
