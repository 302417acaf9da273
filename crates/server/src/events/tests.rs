//! The audit log against real backends: atomic writes, retention, and a follower that loses its watch.

mod audited_calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_backend::{
    Backend, Error, Key, KeyRange, MemoryBackend, Result, Revision, SharedBackend, SqliteBackend, Transaction,
};
use refit_resources::{ResourceError, ResourceStore, SharedStore, open_store};
use refit_testbed::{Intercept, InterceptedBackend, eventually};
use refit_types::{Channel, Kind, Resource};
use tokio::sync::watch;

use super::{Bounds, Change, Event, Events, range};

const WITHIN: Duration = Duration::from_secs(30);

fn long_ago() -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(100 * 24)
}

fn event(subject: &str) -> Event {
    Event::new("test.done", "alice", subject, "did it")
}

async fn subjects(events: &Events) -> Vec<String> {
    let page = events.page(None, None, 1000).await.unwrap();
    page.events.into_iter().map(|event| event.subject).collect()
}

fn channel(name: &str, version: &str) -> Resource {
    let (name, version) = (name.parse().unwrap(), version.parse().unwrap());
    Channel { name, description: String::new(), version, critical: false }.into()
}

fn channels(backend: &SharedBackend) -> SharedStore {
    open_store(Kind::Channel, backend.clone()).unwrap()
}

async fn change(
    events: &Events,
    store: &dyn ResourceStore<Resource>,
    name: &str,
    change: Change<'_>,
) -> std::result::Result<Revision, ResourceError> {
    events.recorded("alice", store, (Kind::Channel, name), change, |_| Ok(())).await
}

/// Refuses writes below a key while it is told to.
#[derive(Debug)]
struct RefusedWrites {
    below: &'static str,
    refuses: AtomicBool,
}

#[tonic::async_trait]
impl Intercept for RefusedWrites {
    async fn before_transact(&self, transaction: &Transaction) -> Result<()> {
        let touched = transaction.writes().iter().any(|write| write.key().as_str().starts_with(self.below));
        match touched && self.refuses.load(Ordering::Relaxed) {
            true => Err(Error::TooLarge("refused".into())),
            false => Ok(()),
        }
    }
}

/// A store that refuses no writes yet.
fn refusing_backend(inner: SqliteBackend, below: &'static str) -> Arc<InterceptedBackend<RefusedWrites>> {
    InterceptedBackend::new(Arc::new(inner), RefusedWrites { below, refuses: AtomicBool::new(false) })
}

#[tokio::test]
async fn a_change_and_its_event_are_stored_together_or_not_at_all() {
    for below in ["/events/", "/channels/"] {
        let directory = tempfile::tempdir().unwrap();
        let inner = SqliteBackend::open(&directory.path().join("store")).unwrap();
        let refusing = refusing_backend(inner, below);
        let backend: SharedBackend = refusing.clone();
        let (events, store) = (Events::new(backend.clone(), Timestamp::now), channels(&backend));
        let (one, two) = (channel("c", "1.0.0"), channel("c", "2.0.0"));

        refusing.refuses.store(true, Ordering::Relaxed);
        change(&events, &*store, "c", Change::Create(&one)).await.unwrap_err();
        assert_eq!(store.get("c").await.unwrap(), None, "{below}");
        assert_eq!(subjects(&events).await, [""; 0], "{below}");

        refusing.refuses.store(false, Ordering::Relaxed);
        let created = change(&events, &*store, "c", Change::Create(&one)).await.unwrap();
        let stored = backend.range(&range(None).unwrap(), 10).await.unwrap().items;
        assert_eq!((stored.len(), stored[0].revision), (1, created), "one transaction, one revision");

        refusing.refuses.store(true, Ordering::Relaxed);
        let changes: [Change<'_>; 3] =
            [Change::Update(&two, None), Change::Upsert(&two, None), Change::Delete(None)];
        for refused in changes {
            change(&events, &*store, "c", refused).await.unwrap_err();
            let found = store.get("c").await.unwrap().unwrap();
            assert_eq!((&found.value, found.revision), (&one, created), "{below}");
            assert_eq!(subjects(&events).await, ["channel/c"], "{below}");
        }
        refusing.refuses.store(false, Ordering::Relaxed);
        let deleted = change(&events, &*store, "c", Change::Delete(Some(created))).await.unwrap();
        let stored = backend.range(&range(None).unwrap(), 10).await.unwrap().items;
        assert_eq!((stored.len(), stored[1].revision), (2, deleted));
    }
}

#[tokio::test]
async fn refusals_and_changes_of_nothing_are_no_events() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let (events, store) = (Events::new(backend.clone(), Timestamp::now), channels(&backend));
    let one = channel("c", "1.0.0");
    let gone = Err(ResourceError::NotFound { name: "c".into() });
    assert_eq!(change(&events, &*store, "c", Change::Update(&one, None)).await, gone);
    assert_eq!(change(&events, &*store, "c", Change::Delete(None)).await, gone);
    let first = change(&events, &*store, "c", Change::Upsert(&one, None)).await.unwrap();
    let taken = Err(ResourceError::AlreadyExists { name: "c".into() });
    assert_eq!(change(&events, &*store, "c", Change::Create(&one)).await, taken);
    let second = change(&events, &*store, "c", Change::Upsert(&one, None)).await.unwrap();
    assert!(second > first, "it is stored though nothing differs");
    let old = Err(ResourceError::Conflict { name: "c".into() });
    let two = channel("c", "2.0.0");
    assert_eq!(change(&events, &*store, "c", Change::Update(&two, Some(first))).await, old);
    assert_eq!(change(&events, &*store, "c", Change::Delete(Some(first))).await, old);
    assert_eq!(subjects(&events).await, ["channel/c"]);
}

#[tokio::test]
async fn what_cannot_be_read_can_still_be_replaced_and_that_is_told() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let (events, store) = (Events::new(backend.clone(), Timestamp::now), channels(&backend));
    change(&events, &*store, "c", Change::Create(&channel("c", "1.0.0"))).await.unwrap();
    for key in ["/channels/default/c", "/channels/v2/default/c"] {
        backend.put(&Key::new(key).unwrap(), "{".into()).await.unwrap();
    }
    assert!(store.get("c").await.is_err());
    let two = channel("c", "2.0.0");
    change(&events, &*store, "c", Change::Upsert(&two, None)).await.unwrap();
    assert_eq!(store.get("c").await.unwrap().unwrap().value, two);
    let told = events.page(None, None, 10).await.unwrap().events.pop().unwrap();
    assert_eq!(
        (told.event_type.as_str(), told.message.as_str()),
        ("resource.updated", "changed channel/c, which could not be read")
    );

    let key = Key::new("/events/v1/default/0000000000000001-x").unwrap();
    backend.put(&key, "{".into()).await.unwrap();
    let first = &events.page(None, None, 1).await.unwrap().events[0];
    assert_eq!((first.event_type.as_str(), first.at.as_microsecond()), ("unreadable", 1));
}

#[tokio::test]
async fn the_history_is_kept_within_its_bounds() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let (old, new) = (Events::new(backend.clone(), long_ago), Events::new(backend.clone(), Timestamp::now));
    for n in 0..250 {
        old.record(event(&format!("old-{n}"))).await.unwrap();
    }
    for n in 0..20 {
        new.record(event(&format!("new-{n}"))).await.unwrap();
    }
    let new = Arc::new(new);
    let (stop, stopped) = watch::channel(false);
    let age = SignedDuration::from_hours(90 * 24);
    let bounds = Bounds { age, most: 100, every: Duration::from_millis(5) };
    let pruning = tokio::spawn(new.clone().prune(bounds, stopped.clone()));
    eventually("the old ones go", WITHIN, async || subjects(&new).await.len() == 20).await;
    assert_eq!(subjects(&new).await[0], "new-0", "nothing young goes for its age");

    let first = backend.read(&[]).await.unwrap().revision;
    for n in 20..300 {
        new.record(event(&format!("new-{n}"))).await.unwrap();
    }
    eventually("the oldest go", WITHIN, async || subjects(&new).await.len() == 100).await;
    let kept = subjects(&new).await;
    assert_eq!((kept[0].as_str(), kept[99].as_str()), ("new-200", "new-299"));
    let mut watch = backend.watch(&range(None).unwrap(), first).await.unwrap();
    let mut largest = 0;
    let (mut gone, mut current) = (0, (Revision(0), 0));
    while gone < 200 {
        let seen = watch.next().await.unwrap();
        if let refit_backend::Change::Delete(_) = seen.change {
            gone += 1;
            current =
                if current.0 == seen.revision { (current.0, current.1 + 1) } else { (seen.revision, 1) };
            largest = largest.max(current.1);
        }
    }
    assert!(largest <= refit_backend::MAX_TRANSACTION_KEYS, "{largest} at once");
    stop.send_replace(true);
    pruning.await.unwrap();
}

#[tokio::test]
async fn a_follower_that_lost_its_watch_misses_nothing_and_repeats_nothing() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let events = Arc::new(Events::new(backend.clone(), Timestamp::now));
    let late = Events::new(backend.clone(), || Timestamp::now() - SignedDuration::from_secs(60));
    for n in 0..450 {
        events.record(event(&format!("{n}"))).await.unwrap();
    }
    let mut follower = events.clone().follow(None).unwrap();
    let mut seen = Vec::new();
    for _ in 0..450 {
        seen.push(follower.next().await.unwrap().subject);
    }
    events.record(event("450")).await.unwrap();
    seen.push(follower.next().await.unwrap().subject);

    // More than any watch is kept for; meanwhile the oldest events go, and another server whose clock is
    // behind writes one that stands before what was given.
    late.record(event("451")).await.unwrap();
    let other = Key::new("/other").unwrap();
    for n in 0..700 {
        let keys = (0..100).map(|m| other.child(n * 100 + m).unwrap());
        let many = keys.fold(Transaction::new(), |tx, key| tx.put(&key, ""));
        backend.transact(many).await.unwrap();
    }
    let first = backend.range(&range(None).unwrap(), 100).await.unwrap().items;
    // The late one is the first by its id.
    let go = first.iter().skip(1).fold(Transaction::new(), |tx, item| tx.delete(&item.key));
    backend.transact(go).await.unwrap();
    events.record(event("452")).await.unwrap();
    let next = async {
        for _ in 451..453 {
            seen.push(follower.next().await.unwrap().subject);
        }
    };
    tokio::time::timeout(WITHIN, next).await.expect("what was lost is read again");
    let expected: Vec<String> = (0..453).map(|n| n.to_string()).collect();
    assert_eq!(seen, expected);
    events.record(event("453")).await.unwrap();
    assert_eq!(follower.next().await.unwrap().subject, "453");
}
