//! One etcd behind a broken network: timeouts, lost responses, and watches over restarts and compactions.

use std::time::{Duration, Instant};

use refit_backend::{Backend, Change, Error, Key, KeyRange, Read, Revision, Transaction};
use refit_testbed::{Etcd, Proxy, eventually};

use super::{bytes, compact, connect, create_for_sure, key, next_keys, within};

#[tokio::test]
async fn an_unreachable_store_is_told_in_time() {
    let started = Instant::now();
    let error = connect("etcd://127.0.0.1:1,127.0.0.1:2").await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let Error::Unavailable { store, reason } = error else { panic!("{error:?}") };
    assert_eq!(store, "etcd 127.0.0.1:1,127.0.0.1:2 /refit");
    assert!(reason.contains("Connection refused"), "{reason}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_in_time() {
    let etcd = Etcd::start().await;
    let backend = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap();
    etcd.pause();
    let started = Instant::now();
    let a = key("/a");
    let (read, write) = tokio::join!(backend.get(&a), backend.put(&a, bytes("")));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    assert!(matches!(write, Err(Error::Unavailable { .. })), "{write:?}");
    etcd.resume();
    create_for_sure(&backend, &key("/b")).await;
}

#[tokio::test]
async fn stores_with_different_prefixes_do_not_meet() {
    let etcd = Etcd::start().await;
    let at = |prefix| format!("etcd://{}{prefix}", etcd.endpoint());
    let (a, ab) = (connect(&at("/a")).await.unwrap(), connect(&at("/ab")).await.unwrap());
    a.put(&key("/k"), bytes("a")).await.unwrap();
    ab.put(&key("/k"), bytes("ab")).await.unwrap();
    assert_eq!(etcd.ctl(&["get", "/ab/k", "--print-value-only"]).await.trim(), "ab");
    assert_eq!(a.delete_range(&KeyRange::all()).await, Ok(1));
    assert_eq!(ab.get(&key("/k")).await.unwrap().unwrap().value, "ab");
}

#[tokio::test]
async fn a_key_that_is_not_ours_is_named() {
    let etcd = Etcd::start().await;
    let backend = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap();
    let mut watch = backend.watch(&KeyRange::all(), Revision(0)).await.unwrap();
    etcd.ctl(&["put", "/refit//odd\n", ""]).await;
    for error in [backend.range(&KeyRange::all(), 10).await.unwrap_err(), watch.next().await.unwrap_err()] {
        assert!(matches!(error, Error::Failed { .. }), "{error:?}");
        assert!(error.to_string().contains(r#""/refit//odd\n""#), "{error}");
    }
}

#[tokio::test]
async fn revision_zero_and_lease_zero_mean_nothing_special() {
    let etcd = Etcd::start().await;
    let backend = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap();
    let k = key("/k");
    let never = Transaction::new().expect_revision(&k, Revision(0)).put(&k, bytes(""));
    assert_eq!(backend.transact(never).await, Err(Error::Conflict { key: k.clone() }));
    let zero = refit_backend::LeaseId(0);
    let never = Transaction::new().put_leased(&k, bytes(""), zero);
    assert_eq!(backend.transact(never).await, Err(Error::LeaseNotFound(zero)));
    let live = backend.grant_lease(Duration::from_secs(60)).await.unwrap().id;
    let gone = refit_backend::LeaseId(77);
    let mixed = Transaction::new().put_leased(&k, bytes(""), live).put_leased(&key("/l"), bytes(""), gone);
    assert_eq!(backend.transact(mixed).await, Err(Error::LeaseNotFound(gone)));
    let empty = KeyRange::between(&key("/z"), &key("/a"));
    let reads = [Read::Range { range: empty.clone(), limit: 1 }, Read::Key(k)];
    assert_eq!(backend.read(&reads).await.unwrap().pages.len(), 2);
    assert_eq!(backend.delete_range(&empty).await, Ok(0));
    backend.watch(&empty, Revision(0)).await.unwrap();
}

#[tokio::test]
async fn a_watch_outlives_a_restart_and_misses_nothing() {
    let mut etcd = Etcd::start().await;
    let backend = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap();
    let start = backend.read(&[]).await.unwrap().revision;
    let mut watch = backend.watch(&KeyRange::all(), start).await.unwrap();
    let keys: Vec<Key> = (0..60).map(|n| key(format!("/k/{n}"))).collect();
    for (round, keys) in keys.chunks(20).enumerate() {
        for key in keys {
            create_for_sure(&backend, key).await;
        }
        if round == 1 {
            assert_eq!(next_keys(&mut watch, 30).await.len(), 30);
        }
        etcd.restart().await;
    }
    assert_eq!(next_keys(&mut watch, 30).await, keys[30..]);
}

#[tokio::test]
async fn a_watch_that_was_away_during_a_compaction_is_lost() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.endpoint()).await;
    let watching = connect(&format!("etcd://{}", proxy.endpoint())).await.unwrap();
    let writing = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap();
    let start = writing.read(&[]).await.unwrap().revision;
    let mut watch = watching.watch(&KeyRange::all(), start).await.unwrap();
    writing.put(&key("/seen"), bytes("")).await.unwrap();
    let seen = within("an event", watch.next()).await.unwrap().revision;
    proxy.cut_after(0);
    writing.put(&key("/missed"), bytes("")).await.unwrap();
    eventually("the cut", Duration::from_secs(10), || async { proxy.has_cut() }).await;
    compact(&etcd, &writing).await;
    assert_eq!(within("the loss", watch.next()).await, Err(Error::WatchLost { after: seen }));
}

#[tokio::test]
async fn a_large_revision_arrives_whole_although_its_stream_breaks() {
    let etcd = Etcd::start().await;
    let writing = connect(&format!("etcd://{}", etcd.endpoint())).await.unwrap();
    let keys: Vec<Key> = (0..4000).map(|n| key(format!("/{n:04}/{}", "x".repeat(900)))).collect();
    for chunk in keys.chunks(100) {
        let put = chunk.iter().fold(Transaction::new(), |tx, key| tx.put(key, bytes("")));
        writing.transact(put).await.unwrap();
    }
    let start = writing.read(&[]).await.unwrap().revision;
    let proxy = Proxy::to(etcd.endpoint()).await;
    let watching = connect(&format!("etcd://{}", proxy.endpoint())).await.unwrap();
    let mut watch = watching.watch(&KeyRange::all(), start).await.unwrap();
    proxy.cut_after(2_500_000);
    assert_eq!(writing.delete_range(&KeyRange::all()).await, Ok(4000));
    for key in keys {
        let event = within("an event", watch.next()).await.unwrap();
        assert_eq!((event.revision.0, event.change), (start.0 + 1, Change::Delete(key)));
    }
    assert!(proxy.has_cut(), "the revision was too small to be cut in two");
    writing.put(&key("/end"), bytes("")).await.unwrap();
    assert_eq!(next_keys(&mut watch, 1).await, [key("/end")]);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_sent_again() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.endpoint()).await;
    let backend = connect(&format!("etcd://{}", proxy.endpoint())).await.unwrap();
    let start = backend.read(&[]).await.unwrap().revision;
    proxy.cut_after(0);
    let lost = backend.put(&key("/a"), bytes("")).await;
    assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    proxy.cut_after(0);
    backend.get(&key("/a")).await.expect("a read is");
    assert!(proxy.has_cut());
    let written = backend.put(&key("/end"), bytes("")).await.unwrap();
    assert!(written.0 <= start.0 + 2, "{start} {written}");
}

/// Nothing is lost with a member that was dead before it was asked.
#[tokio::test]
async fn a_write_that_was_never_sent_goes_to_the_next_member() {
    let dead = Etcd::start().await.endpoint();
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(etcd.endpoint()).await;
    let backend = connect(&format!("etcd://{},{dead},{}", proxy.endpoint(), etcd.endpoint())).await.unwrap();
    proxy.cut_after(0);
    let lost = backend.put(&key("/a"), bytes("")).await;
    assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    backend.put(&key("/b"), bytes("")).await.expect("the dead one is passed over");
}
