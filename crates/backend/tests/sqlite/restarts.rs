//! What survives a restart or a kill: items, revisions, leases and acknowledged writes.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use refit_backend::{Backend, Change, Error, KeyRange, Revision, Transaction};

use crate::conformance::{bytes, key, within};
use crate::{child, child_store, open, place};

#[tokio::test]
async fn reopening_finds_everything() {
    let (_directory, path) = place();
    let store = open(&path);
    for n in 0..50 {
        store.put(&key(format!("/k/{n}")), bytes(vec![n; 3000])).await.unwrap();
    }
    store.delete(&key("/k/7")).await.unwrap();
    let before = store.range(&KeyRange::all(), 100).await.unwrap();
    assert_eq!(before.items.len(), 49);
    drop(store);
    assert_eq!(open(&path).range(&KeyRange::all(), 100).await, Ok(before));
}

#[tokio::test]
async fn the_revision_goes_on_after_a_delete() {
    let (_directory, path) = place();
    let store = open(&path);
    let written = store.put(&key("/a"), bytes("1")).await.unwrap();
    let deleted = store.delete(&key("/a")).await.unwrap();
    assert!(deleted > written);
    drop(store);
    let store = open(&path);
    assert_eq!(store.range(&KeyRange::all(), 1).await.unwrap().revision, deleted);
    assert!(store.put(&key("/a"), bytes("2")).await.unwrap() > deleted);
}

#[tokio::test]
async fn events_of_an_earlier_process_are_told_lost() {
    let (_directory, path) = place();
    let last = open(&path).put(&key("/a"), bytes("1")).await.unwrap();
    let store = open(&path);
    let mut late = store.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    assert_eq!(within("the loss", late.next()).await, Err(Error::WatchLost { after: Revision(0) }));
    let mut current = store.watch(&KeyRange::all(), last).await.unwrap();
    let next = store.put(&key("/b"), bytes("2")).await.unwrap();
    assert_eq!(within("the event", current.next()).await.unwrap().revision, next);
}

#[tokio::test]
async fn a_watch_ends_with_the_store() {
    let (_directory, path) = place();
    let store = open(&path);
    let mut watch = store.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    drop(store);
    assert_eq!(within("the end", watch.next()).await, Err(Error::Closed));
}

#[tokio::test]
async fn leases_get_their_full_time_again_and_then_expire() {
    let (_directory, path) = place();
    let ttl = Duration::from_secs(2);
    let store = open(&path);
    let lease = store.grant_lease(ttl).await.unwrap();
    let other = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    let held = key("/held");
    store.transact(Transaction::new().put_leased(&held, bytes("1"), lease.id)).await.unwrap();
    store.transact(Transaction::new().put_leased(&key("/other"), bytes("1"), other.id)).await.unwrap();
    drop(store);

    let reopened = tokio::time::Instant::now();
    let store = open(&path);
    let found = store.get(&held).await.unwrap().unwrap();
    assert_eq!(found.lease, Some(lease.id));
    let revision = store.range(&KeyRange::all(), 1).await.unwrap().revision;
    let mut watch = store.watch(&KeyRange::all(), revision).await.unwrap();
    let event = within("the expiry", watch.next()).await.unwrap();
    assert_eq!(event.change, Change::Delete(held.clone()));
    assert!(reopened.elapsed() >= ttl, "expired after {:?}", reopened.elapsed());
    assert_eq!(store.keep_alive(lease.id).await, Err(Error::LeaseNotFound(lease.id)));
    store.keep_alive(other.id).await.unwrap();
    drop(store);

    let store = open(&path);
    assert_eq!(store.get(&held).await, Ok(None));
    assert_eq!(store.keep_alive(lease.id).await, Err(Error::LeaseNotFound(lease.id)));
    store.revoke_lease(other.id).await.unwrap();
    assert_eq!(store.get(&key("/other")).await, Ok(None));
}

/// Writes from several tasks until killed, and says on standard output what was acknowledged.
async fn write_for_ever(path: &std::path::Path) {
    let store = open(path);
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0.. {
                let (a, b) = (key(format!("/a/{writer}/{n}")), key(format!("/b/{writer}/{n}")));
                store.transact(Transaction::new().put(&a, bytes("x")).put(&b, bytes("y"))).await.unwrap();
                let line = format!("\nacknowledged {writer}/{n}\n");
                std::io::stdout().write_all(line.as_bytes()).unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill() {
    if let Some(path) = child_store() {
        return write_for_ever(&path).await;
    }
    let (_directory, path) = place();
    for round in 1..=3 {
        let mut writer = child("restarts::what_was_acknowledged_survives_a_kill", &path).spawn().unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut acknowledged = Vec::new();
        for line in lines {
            acknowledged.extend(line.strip_prefix("acknowledged ").map(str::to_owned));
            if acknowledged.len() == 400 * round {
                writer.kill().unwrap();
            }
        }
        writer.wait().unwrap();
        assert!(acknowledged.len() >= 400 * round);
        let store = open(&path);
        for name in &acknowledged {
            assert!(store.get(&key(format!("/a/{name}"))).await.unwrap().is_some(), "/a/{name} is lost");
            assert!(store.get(&key(format!("/b/{name}"))).await.unwrap().is_some(), "/b/{name} is lost");
        }
        let a = store.delete_range(&KeyRange::below(&key("/a"))).await.unwrap();
        assert_eq!(store.delete_range(&KeyRange::below(&key("/b"))).await.unwrap(), a, "all or nothing");
    }
}
