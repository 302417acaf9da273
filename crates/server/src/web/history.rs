//! The audit events in memory, newest first, kept current by a follower. Pages read them here.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use refit_backend::{Error, follow};
use tokio::sync::watch;

use crate::events::{Event, Events};

/// As many as the store keeps.
const MOST: usize = 10_000;

/// Which events to show; empty fields match everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    /// The beginning of a type: `resource`, or `resource.updated`.
    pub(super) kind: String,
    /// Part of what it was done to.
    pub(super) subject: String,
    /// Part of who did it.
    pub(super) actor: String,
    pub(super) since: Option<Timestamp>,
}

impl Filter {
    fn matches(&self, event: &Event) -> bool {
        let holds = |text: &str, wanted: &str| wanted.is_empty() || text.to_lowercase().contains(wanted);
        event.event_type.starts_with(&self.kind)
            && holds(&event.subject, &self.subject)
            && holds(&event.actor, &self.actor)
            && self.since.is_none_or(|since| event.at >= since)
    }
}

/// The audit events in memory: pages list them newest first, which the store does not support, and on every live update.
#[derive(Debug, Default)]
pub(super) struct History {
    events: RwLock<BTreeMap<String, Arc<Event>>>,
    /// Counts up with each event.
    seen: watch::Sender<u64>,
}

impl History {
    /// Reads the history and follows it, until the server stops.
    pub(super) async fn follow(&self, events: Arc<Events>, stop: watch::Receiver<bool>) {
        follow("the events of the dashboard", stop, || self.read_and_follow(&events)).await;
    }

    async fn read_and_follow(&self, events: &Arc<Events>) -> Result<(), Error> {
        let mut follower = events.clone().follow(None)?;
        loop {
            self.add(follower.next().await?);
        }
    }

    fn add(&self, event: Event) {
        let mut events = self.events.write().unwrap_or_else(PoisonError::into_inner);
        events.insert(event.id.clone(), Arc::new(event));
        if events.len() > MOST {
            events.pop_first();
        }
        drop(events);
        self.seen.send_modify(|seen| *seen += 1);
    }

    /// How many events came so far.
    pub(super) fn seen(&self) -> u64 {
        *self.seen.borrow()
    }

    /// Up to `limit` events from the newest back, older than the one with the id `before`; and whether there
    /// are more.
    pub(super) fn page(
        &self,
        filter: &Filter,
        before: Option<&str>,
        limit: usize,
    ) -> (Vec<Arc<Event>>, bool) {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        let behind: Box<dyn Iterator<Item = &Arc<Event>>> = match before {
            Some(before) => {
                let older = events.range::<str, _>((Bound::Unbounded, Bound::Excluded(before)));
                Box::new(older.rev().map(|(_, event)| event))
            }
            None => Box::new(events.values().rev()),
        };
        let mut matching = behind.filter(|event| filter.matches(event)).cloned();
        let page = matching.by_ref().take(limit).collect();
        (page, matching.next().is_some())
    }

    /// The newest of some events, the newest first.
    pub(super) fn newest(&self, limit: usize, is_wanted: impl Fn(&Event) -> bool) -> Vec<Arc<Event>> {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        events.values().rev().filter(|event| is_wanted(event)).take(limit).cloned().collect()
    }

    /// The types that there are, for a list to choose from.
    pub(super) fn kinds(&self) -> Vec<String> {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        let kinds: std::collections::BTreeSet<&str> =
            events.values().map(|event| event.event_type.as_str()).collect();
        kinds.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u32, kind: &str, actor: &str) -> Event {
        let event = Event::new(kind, actor, "group/prod", "something");
        Event { id: format!("{n:016}-s"), at: Timestamp::from_second(n.into()).unwrap(), ..event }
    }

    #[test]
    fn pages_go_from_the_newest_back_and_miss_nothing() {
        let history = History::default();
        (0..25).for_each(|n| history.add(event(n, if n % 5 == 0 { "group.run" } else { "other" }, "Alice")));
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let (page, more) = history.page(&Filter::default(), before.as_deref(), 10);
            seen.extend(page.iter().map(|event| event.at.as_second()));
            before = page.last().map(|event| event.id.clone());
            if !more {
                break;
            }
        }
        assert_eq!(seen, (0..25).rev().collect::<Vec<_>>());
        let wanted = |filter: Filter| history.page(&filter, None, 100).0.len();
        assert_eq!(wanted(Filter { kind: "group".into(), ..Filter::default() }), 5);
        assert_eq!(wanted(Filter { actor: "ali".into(), ..Filter::default() }), 25);
        assert_eq!(wanted(Filter { subject: "staging".into(), ..Filter::default() }), 0);
        let newest = history.newest(2, |event| event.event_type == "group.run");
        assert_eq!(newest.iter().map(|event| event.at.as_second()).collect::<Vec<_>>(), [20, 15]);
        let since = Timestamp::from_second(20).ok();
        assert_eq!(wanted(Filter { since, ..Filter::default() }), 5);
        assert_eq!((history.kinds(), history.seen()), (vec!["group.run".into(), "other".into()], 25));
    }

    #[test]
    fn memory_is_bounded() {
        let history = History::default();
        (0..MOST as u32 + 5).for_each(|n| history.add(event(n, "other", "a")));
        let (all, more) = history.page(&Filter::default(), None, MOST + 5);
        assert_eq!((all.len(), more, all[MOST - 1].at.as_second()), (MOST, false, 5));
    }
}
