//! Contract of range reads: order, paging under concurrent writes, and snapshot consistency.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use refit_backend::{Error, Item, Key, KeyRange, Read, SharedBackend, Transaction};

use super::{Store, bytes, key};

async fn read_all(store: &SharedBackend, range: &KeyRange, limit: usize) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut rest = range.clone();
    loop {
        let page = store.range(&rest, limit).await.unwrap();
        assert!(page.items.len() <= limit, "{} items in a page of {limit}", page.items.len());
        let last = page.items.last().map(|item| item.key.clone());
        items.extend(page.items);
        match last {
            Some(last) if page.more => rest = rest.after(&last),
            _ => return items,
        }
    }
}

fn names(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.key.as_str()).collect()
}

async fn fill(store: &SharedBackend, keys: &[Key]) {
    for chunk in keys.chunks(100) {
        let tx = chunk.iter().fold(Transaction::new(), |tx, key| tx.put(key, bytes("v")));
        store.transact(tx).await.unwrap();
    }
}

pub async fn ranges_are_ordered_and_bounded(store: &impl Store) {
    let store = store.backend();
    for path in ["/b/2", "/b/10", "/a/z", "/b/1", "/c/1", "/b/é"] {
        store.put(&key(path), bytes(path)).await.unwrap();
    }
    let below = store.range(&KeyRange::below(&key("/b")), 100).await.unwrap();
    assert_eq!(names(&below.items), ["/b/1", "/b/10", "/b/2", "/b/é"]);
    assert!(!below.more);
    let between = store.range(&KeyRange::between(&key("/b/10"), &key("/c/1")), 100).await.unwrap();
    assert_eq!(names(&between.items), ["/b/10", "/b/2", "/b/é"]);
    let reversed = store.range(&KeyRange::between(&key("/c"), &key("/b")), 100).await.unwrap();
    assert_eq!((reversed.items, reversed.more), (vec![], false));
    let all = store.range(&KeyRange::all(), 100).await.unwrap();
    assert_eq!(all.items.len(), 6);
}

pub async fn keys_that_are_prefixes_of_each_other_stay_apart(store: &impl Store) {
    let store = store.backend();
    let paths = ["/p", "/p/a", "/p/a/b", "/p/ab", "/p/a.b", "/pa"];
    for path in paths {
        store.put(&key(path), bytes(path)).await.unwrap();
    }
    for path in paths {
        assert_eq!(store.get(&key(path)).await.unwrap().unwrap().value, path);
    }
    let under = |path| KeyRange::below(&key(path));
    assert_eq!(names(&read_all(&store, &under("/p"), 10).await), ["/p/a", "/p/a.b", "/p/a/b", "/p/ab"]);
    assert_eq!(names(&read_all(&store, &under("/p/a"), 10).await), ["/p/a/b"]);
    store.delete(&key("/p/a")).await.unwrap();
    assert_eq!(store.delete_range(&under("/p/a")).await, Ok(1));
    assert_eq!(names(&read_all(&store, &KeyRange::all(), 10).await), ["/p", "/p/a.b", "/p/ab", "/pa"]);
}

pub async fn pages_cover_everything_once(store: &impl Store) {
    let store = store.backend();
    let keys: Vec<Key> = (0..250).map(|n| key(format!("/page/{n:04}"))).collect();
    fill(&store, &keys).await;
    let expected: Vec<&str> = keys.iter().map(Key::as_str).collect();
    for limit in [1, 7, 50, 249, 250, 251, 1000] {
        let items = read_all(&store, &KeyRange::below(&key("/page")), limit).await;
        assert_eq!(names(&items), expected, "in pages of {limit}");
    }
    let exact = store.range(&KeyRange::below(&key("/page")), 250).await.unwrap();
    assert!(!exact.more, "a full page that is the last one says so");
    let huge = store.range(&KeyRange::below(&key("/page")), usize::MAX).await.unwrap();
    assert_eq!(huge.items.len(), 250);
}

pub async fn paging_under_concurrent_writes_keeps_what_stays(store: &impl Store) {
    let store = store.backend();
    let stays: Vec<Key> = (0..400).map(|n| key(format!("/mix/{n:04}-stays"))).collect();
    fill(&store, &stays).await;
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, written) = (Arc::clone(&store), Arc::clone(&written));
            tokio::spawn(async move {
                for n in 0u64.. {
                    let churn = key(format!("/mix/{:04}-churn-{writer}", (n * 37) % 400));
                    store.put(&churn, bytes("c")).await.unwrap();
                    store.put(&key(format!("/mix/{:04}-stays", (n * 91) % 400)), bytes("w")).await.unwrap();
                    store.delete(&churn).await.unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for limit in [3, 17, 64].into_iter().cycle() {
        let items = read_all(&store, &KeyRange::below(&key("/mix")), limit).await;
        let names = names(&items);
        assert!(names.is_sorted(), "out of order");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "something was seen twice");
        let kept: Vec<&str> = names.into_iter().filter(|name| name.ends_with("stays")).collect();
        assert_eq!(kept, stays.iter().map(Key::as_str).collect::<Vec<_>>());
        if limit == 64 && written.load(Ordering::Relaxed) > 200 {
            break;
        }
    }
    for writer in writers {
        writer.abort();
    }
}

pub async fn a_snapshot_is_one_moment(store: &impl Store) {
    let store = store.backend();
    let (a, b) = (key("/snap/a"), key("/snap/b"));
    let both = |n: u32| Transaction::new().put(&a, bytes(n.to_string())).put(&b, bytes(n.to_string()));
    store.transact(both(0)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, stop, a, b) = (Arc::clone(&store), Arc::clone(&stop), a.clone(), b.clone());
        tokio::spawn(async move {
            let mut n = 1;
            while !stop.load(Ordering::Relaxed) {
                let value = bytes(n.to_string());
                store.transact(Transaction::new().put(&a, value.clone()).put(&b, value)).await.unwrap();
                n += 1;
                tokio::task::yield_now().await;
            }
            n
        })
    };
    let reads = [
        Read::Key(a.clone()),
        Read::Range { range: KeyRange::below(&key("/snap")), limit: 10 },
        Read::Key(b.clone()),
        Read::Key(key("/snap/none")),
    ];
    let mut seen = BTreeSet::new();
    while seen.len() < 50 {
        let snapshot = store.read(&reads).await.unwrap();
        let (one, two) = (snapshot.item(0).unwrap(), snapshot.item(2).unwrap());
        assert_eq!((&one.value, one.revision), (&two.value, two.revision));
        assert_eq!(snapshot.pages[1].items, [one.clone(), two.clone()]);
        assert!(snapshot.item(3).is_none());
        assert!(snapshot.revision >= one.revision && snapshot.pages[1].revision == snapshot.revision);
        seen.insert(one.revision);
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    let too_many = vec![Read::Key(a); 101];
    assert!(matches!(store.read(&too_many).await, Err(Error::TooLarge(_))));
}

pub async fn delete_range_takes_all_at_once(store: &impl Store) {
    let store = store.backend();
    let keys: Vec<Key> = (0..300).map(|n| key(format!("/gone/{n:04}"))).collect();
    fill(&store, &keys).await;
    let beside = store.put(&key("/gone.not"), bytes("stay")).await.unwrap();
    let mut watch = store.watch(&KeyRange::all(), beside).await.unwrap();
    assert_eq!(store.delete_range(&KeyRange::below(&key("/gone"))).await, Ok(300));
    assert_eq!(store.delete_range(&KeyRange::below(&key("/gone"))).await, Ok(0));
    let mut revisions = BTreeSet::new();
    let mut deleted = BTreeSet::new();
    while deleted.len() < 300 {
        let event = watch.next().await.unwrap();
        revisions.insert(event.revision);
        deleted.insert(event.key().clone());
    }
    assert_eq!(revisions.len(), 1, "one moment for all");
    assert_eq!(names(&read_all(&store, &KeyRange::all(), 10).await), ["/gone.not"]);
}

pub async fn a_scan_gives_every_item_once_in_bounded_pages(store: &impl Store) {
    let store = store.backend();
    let range = KeyRange::below(&key("/scan"));
    let mut empty = store.scan(range.clone());
    assert_eq!(empty.next_page().await, Ok(None));
    assert_eq!(empty.next_page().await, Ok(None), "a scan that has ended stays so");

    let keys: Vec<Key> = (0..250).map(|n| key(format!("/scan/{n:04}"))).collect();
    fill(&store, &keys).await;
    store.put(&key("/scanned"), bytes("beside")).await.unwrap();
    let expected: Vec<&str> = keys.iter().map(Key::as_str).collect();
    for (page_items, pages) in [(1, 250), (100, 3), (125, 2), (250, 1), (1000, 1)] {
        let (mut scan, mut items, mut count) = (store.scan(range.clone()).by(page_items), Vec::new(), 0);
        while let Some(page) = scan.next_page().await.unwrap() {
            assert!(!page.is_empty() && page.len() <= page_items, "{} of {page_items}", page.len());
            items.extend(page);
            count += 1;
        }
        assert_eq!((names(&items), count), (expected.clone(), pages), "in pages of {page_items}");
    }
}

pub async fn a_watch_after_a_scan_tells_what_its_pages_lack(store: &impl Store) {
    let store = store.backend();
    let keys: Vec<Key> = (0..20).map(|n| key(format!("/scan/{n:04}"))).collect();
    fill(&store, &keys).await;
    let range = KeyRange::below(&key("/scan"));
    let mut scan = store.scan(range.clone()).by(10);
    assert_eq!(scan.next_page().await.unwrap().unwrap().len(), 10);
    // Behind the page that was read, and before the one that follows.
    let missed = store.put(&key("/scan/0003-new"), bytes("n")).await.unwrap();
    assert_eq!(scan.next_page().await.unwrap().unwrap().len(), 10);
    assert_eq!(scan.next_page().await.unwrap(), None);
    assert!(scan.since() < missed);
    let mut watch = store.watch(&range, scan.since()).await.unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!((event.key().as_str(), event.revision), ("/scan/0003-new", missed));
}
