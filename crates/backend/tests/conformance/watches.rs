//! Contract of watches: order, completeness, joining a read without a gap, and the error after lost events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use refit_backend::{Change, Error, Event, Key, KeyRange, Revision, Transaction, Watch, follow};
use tokio::sync::watch;

use super::{Store, bytes, key};

async fn take(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(watch.next().await.unwrap());
    }
    events
}

fn shown(event: &Event) -> String {
    match &event.change {
        Change::Put(item) => format!("{}={}", item.key, String::from_utf8_lossy(&item.value)),
        Change::Delete(key) => format!("{key} gone"),
    }
}

pub async fn a_watch_sees_its_own_writes_in_order(store: &impl Store) {
    let store = store.backend();
    let before = store.put(&key("/w/before"), bytes("")).await.unwrap();
    let mut watch = store.watch(&KeyRange::all(), before).await.unwrap();
    let one = store.put(&key("/w/a"), bytes("1")).await.unwrap();
    let two =
        store.transact(Transaction::new().put(&key("/w/b"), bytes("2")).delete(&key("/w/a"))).await.unwrap();
    let three = store.put(&key("/w/a"), bytes("3")).await.unwrap();
    let mut events = take(&mut watch, 4).await;
    let revisions: Vec<Revision> = events.iter().map(|event| event.revision).collect();
    assert_eq!(revisions, [one, two, two, three]);
    events[1..3].sort_by(|a, b| a.key().cmp(b.key()));
    let lines: Vec<String> = events.iter().map(shown).collect();
    assert_eq!(lines, ["/w/a=1", "/w/a gone", "/w/b=2", "/w/a=3"]);
    let Change::Put(item) = &events[3].change else { panic!("{:?}", events[3]) };
    assert_eq!(Some(item), store.get(&key("/w/a")).await.unwrap().as_ref());
}

pub async fn a_watch_from_an_earlier_revision_misses_nothing(store: &impl Store) {
    let store = store.backend();
    let start = store.put(&key("/w/0"), bytes("")).await.unwrap();
    let mut written = Vec::new();
    for n in 1..=50 {
        written.push(store.put(&key(format!("/w/{n}")), bytes("")).await.unwrap());
    }
    let mut watch = store.watch(&KeyRange::all(), start).await.unwrap();
    for n in 51..=100 {
        written.push(store.put(&key(format!("/w/{n}")), bytes("")).await.unwrap());
    }
    let seen: Vec<Revision> = take(&mut watch, 100).await.iter().map(|event| event.revision).collect();
    assert_eq!(seen, written);
    let mut middle = store.watch(&KeyRange::all(), written[69]).await.unwrap();
    assert_eq!(middle.next().await.unwrap().revision, written[70]);
}

pub async fn a_watch_is_bounded_by_its_range(store: &impl Store) {
    let store = store.backend();
    let start = store.put(&key("/w/x"), bytes("")).await.unwrap();
    let mut watch = store.watch(&KeyRange::below(&key("/w/in")), start).await.unwrap();
    for path in ["/w/in", "/w/in/1", "/w/inside", "/w/in/2", "/v", "/w/in/3"] {
        store.put(&key(path), bytes("")).await.unwrap();
    }
    let seen: Vec<Key> = take(&mut watch, 3).await.iter().map(|event| event.key().clone()).collect();
    assert_eq!(seen, [key("/w/in/1"), key("/w/in/2"), key("/w/in/3")]);
}

pub async fn a_watch_under_load_sees_every_write_once(store: &impl Store) {
    let store = store.backend();
    let start = store.put(&key("/start"), bytes("")).await.unwrap();
    let mut watch = store.watch(&KeyRange::below(&key("/load")), start).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut written = Vec::new();
                for n in 0..50 {
                    let k = key(format!("/load/{writer}-{n}"));
                    written.push((store.put(&k, bytes("v")).await.unwrap(), k));
                }
                written
            })
        })
        .collect();
    let seen: Vec<(Revision, Key)> =
        take(&mut watch, 400).await.into_iter().map(|event| (event.revision, event.key().clone())).collect();
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    written.sort();
    assert_eq!(seen, written);
}

pub async fn a_read_and_a_watch_join_without_a_gap(store: &impl Store) {
    let store = store.backend();
    let range = KeyRange::below(&key("/join"));
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..200 {
                store.put(&key(format!("/join/{}", n % 20)), bytes(n.to_string())).await.unwrap();
                if n % 7 == 0 {
                    store.delete(&key(format!("/join/{}", n % 20))).await.unwrap();
                }
            }
            store.put(&key("/join/end"), bytes("")).await.unwrap();
        })
    };
    let page = store.range(&range, 1000).await.unwrap();
    let mut cache: BTreeMap<Key, _> = page.items.into_iter().map(|item| (item.key.clone(), item)).collect();
    let mut watch = store.watch(&range, page.revision).await.unwrap();
    loop {
        let event = watch.next().await.unwrap();
        let ended = event.key() == &key("/join/end");
        match event.change {
            Change::Put(item) => drop(cache.insert(item.key.clone(), item)),
            Change::Delete(key) => drop(cache.remove(&key)),
        }
        if ended {
            break;
        }
    }
    writer.await.unwrap();
    let truth = store.range(&range, 1000).await.unwrap().items;
    assert_eq!(cache.into_values().collect::<Vec<_>>(), truth);
}

pub async fn expiry_is_an_event(store: &impl Store) {
    let store = store.backend();
    let lease = store.grant_lease(Duration::from_secs(2)).await.unwrap();
    let k = key("/w/leased");
    let at = store.transact(Transaction::new().put_leased(&k, bytes(""), lease.id)).await.unwrap();
    let mut watch = store.watch(&KeyRange::all(), at).await.unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event.change, Change::Delete(k));
    assert!(event.revision > at);
}

pub async fn a_watch_that_fell_behind_says_so(harness: &impl Store) {
    let store = harness.backend();
    let old = store.put(&key("/w/old"), bytes("")).await.unwrap();
    store.put(&key("/w/newer"), bytes("")).await.unwrap();
    harness.forget_history().await;
    let mut watch = store.watch(&KeyRange::all(), old).await.unwrap();
    assert_eq!(watch.next().await, Err(Error::WatchLost { after: old }));
    assert_eq!(watch.next().await, Err(Error::Closed), "a lost watch is over");
    let now = store.read(&[]).await.unwrap().revision;
    let mut fresh = store.watch(&KeyRange::all(), now).await.unwrap();
    let written = store.put(&key("/w/new"), bytes("")).await.unwrap();
    assert_eq!(fresh.next().await.unwrap().revision, written);
}

/// The first time it watches from a revision that the store has forgotten, and so loses its watch; the second time it has
/// read what is stored, and is told of what comes.
pub async fn following_reads_again_after_a_lost_watch(store: &impl Store) {
    let backend = store.backend();
    let range = KeyRange::below(&key("/followed"));
    let old = backend.put(&key("/followed/a"), bytes("")).await.unwrap();
    backend.put(&key("/followed/b"), bytes("")).await.unwrap();
    store.forget_history().await;
    let (_stop, stopped) = watch::channel(false);
    let mut rounds = 0;
    let (seen, mut told) = tokio::sync::mpsc::unbounded_channel();
    follow("the followed keys", stopped, || {
        rounds += 1;
        let (backend, range, seen, is_first) = (backend.clone(), range.clone(), seen.clone(), rounds == 1);
        async move {
            let mut scan = backend.scan(range.clone());
            let mut count = 0;
            while let Some(page) = scan.next_page().await? {
                count += page.len();
            }
            let mut watch = backend.watch(&range, if is_first { old } else { scan.since() }).await?;
            if !is_first {
                backend.put(&key("/followed/c"), bytes("")).await?;
            }
            let event = watch.next().await?;
            seen.send((count, event.key().to_string())).expect("the test listens");
            Ok::<_, Error>(())
        }
    })
    .await;
    assert_eq!(told.try_recv().ok(), Some((2, "/followed/c".to_owned())));
    assert_eq!(rounds, 2);
}

pub async fn following_ends_with_its_server(store: &impl Store) {
    let backend = store.backend();
    let (stop, stopped) = watch::channel(false);
    let watching = || async {
        let at = backend.read(&[]).await?.revision;
        let mut watch = backend.watch(&KeyRange::all(), at).await?;
        stop.send_replace(true);
        watch.next().await.map(drop)
    };
    follow("everything", stopped, watching).await;
}
