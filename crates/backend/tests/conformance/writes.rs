//! Contract of writes: compare-and-swap, revisions, limits and concurrent creates.

use std::sync::Arc;

use futures::future::join_all;
use refit_backend::{Error, Key, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEYS, Revision, Transaction};

use super::{Store, bytes, key};

pub async fn single_operations_have_distinct_errors(store: &impl Store) {
    let store = store.backend();
    let k = key("/things/one");
    assert_eq!(store.get(&k).await, Ok(None));
    assert_eq!(store.update(&k, bytes("x")).await, Err(Error::NotFound { key: k.clone() }));
    assert_eq!(store.delete(&k).await, Err(Error::NotFound { key: k.clone() }));

    let created = store.create(&k, bytes("a")).await.unwrap();
    let item = store.get(&k).await.unwrap().unwrap();
    assert_eq!((item.key, &item.value[..], item.revision, item.lease), (k.clone(), &b"a"[..], created, None));

    assert_eq!(store.create(&k, bytes("b")).await, Err(Error::AlreadyExists { key: k.clone() }));
    assert_eq!(&store.get(&k).await.unwrap().unwrap().value[..], b"a");
    store.update(&k, bytes("c")).await.unwrap();
    assert_eq!(&store.get(&k).await.unwrap().unwrap().value[..], b"c");
    store.put(&k, bytes("d")).await.unwrap();
    assert_eq!(&store.get(&k).await.unwrap().unwrap().value[..], b"d");
    store.delete(&k).await.unwrap();
    assert_eq!(store.get(&k).await, Ok(None));
    store.put(&k, bytes("e")).await.unwrap();
    assert_eq!(&store.get(&k).await.unwrap().unwrap().value[..], b"e");
}

pub async fn a_failed_compare_writes_nothing_and_names_the_key(store: &impl Store) {
    let store = store.backend();
    let (a, b, c) = (key("/t/a"), key("/t/b"), key("/t/c"));
    let at = store.put(&a, bytes("1")).await.unwrap();
    store.put(&b, bytes("1")).await.unwrap();
    let transaction = Transaction::new()
        .expect_revision(&a, at)
        .expect_absent(&b)
        .expect_present(&c)
        .put(&a, bytes("2"))
        .put(&c, bytes("2"))
        .delete(&b);
    assert_eq!(store.transact(transaction).await, Err(Error::Conflict { key: b.clone() }));
    assert_eq!(&store.get(&a).await.unwrap().unwrap().value[..], b"1");
    assert_eq!(&store.get(&b).await.unwrap().unwrap().value[..], b"1");
    assert_eq!(store.get(&c).await, Ok(None));
}

pub async fn every_kind_of_compare_holds_and_fails(store: &impl Store) {
    let store = store.backend();
    let (there, gone, note) = (key("/t/there"), key("/t/gone"), key("/t/note"));
    let at = store.put(&there, bytes("x")).await.unwrap();
    let wrong = Revision(at.0 + 1000);
    let cases = [
        (Transaction::new().expect_absent(&gone), None),
        (Transaction::new().expect_present(&there), None),
        (Transaction::new().expect_revision(&there, at), None),
        (Transaction::new().expect_absent(&there), Some(&there)),
        (Transaction::new().expect_present(&gone), Some(&gone)),
        (Transaction::new().expect_revision(&there, wrong), Some(&there)),
        (Transaction::new().expect_revision(&gone, at), Some(&gone)),
    ];
    for (transaction, fails) in cases {
        let outcome = store.transact(transaction.clone()).await;
        let written = store.transact(transaction.put(&note, bytes("n"))).await;
        match fails {
            None => {
                outcome.unwrap();
                written.unwrap();
                store.delete(&note).await.unwrap();
            }
            Some(key) => {
                assert_eq!(outcome, Err(Error::Conflict { key: key.clone() }));
                assert_eq!(written, Err(Error::Conflict { key: key.clone() }));
                assert_eq!(store.get(&note).await, Ok(None));
            }
        }
    }
}

pub async fn revisions_grow_strictly_and_are_shared_within_a_transaction(store: &impl Store) {
    let store = store.backend();
    let (a, b) = (key("/r/a"), key("/r/b"));
    let mut last = Revision(0);
    for round in 0..20 {
        let written = match round % 4 {
            0 => store.put(&a, bytes("x")).await.unwrap(),
            1 => store.update(&a, bytes("y")).await.unwrap(),
            2 => {
                let both = Transaction::new().put(&a, bytes("z")).put(&b, bytes("z"));
                let at = store.transact(both).await.unwrap();
                assert_eq!(store.get(&a).await.unwrap().unwrap().revision, at);
                assert_eq!(store.get(&b).await.unwrap().unwrap().revision, at);
                at
            }
            _ => store.delete(&a).await.unwrap(),
        };
        assert!(written > last, "{written} after {last}");
        last = written;
    }
    let nothing = store.transact(Transaction::new().delete(&key("/r/none"))).await.unwrap();
    assert_eq!(nothing, last, "a transaction that changes nothing takes no revision");
    assert!(store.put(&a, bytes("x")).await.unwrap() > last);
}

pub async fn values_may_be_empty_or_a_mebibyte(store: &impl Store) {
    let store = store.backend();
    let big: Vec<u8> = (0..1024 * 1024).map(|n| (n % 251) as u8).collect();
    store.put(&key("/v/empty"), bytes("")).await.unwrap();
    store.put(&key("/v/big"), bytes(&big)).await.unwrap();
    assert_eq!(store.get(&key("/v/empty")).await.unwrap().unwrap().value.len(), 0);
    assert!(store.get(&key("/v/big")).await.unwrap().unwrap().value == big);
}

pub async fn counting_by_compare_loses_no_increment(store: &impl Store) {
    const WRITERS: usize = 64;
    const EACH: usize = 2;
    let store = store.backend();
    let counter = key("/count/er");
    store.create(&counter, bytes("0")).await.unwrap();
    let increments = (0..WRITERS * EACH).map(|_| {
        let (store, counter) = (Arc::clone(&store), counter.clone());
        tokio::spawn(async move {
            loop {
                let item = store.get(&counter).await.unwrap().unwrap();
                let count: u64 = std::str::from_utf8(&item.value).unwrap().parse().unwrap();
                let next = Transaction::new()
                    .expect_revision(&counter, item.revision)
                    .put(&counter, bytes((count + 1).to_string()));
                match store.transact(next).await {
                    Ok(_) => return,
                    Err(Error::Conflict { .. }) => tokio::task::yield_now().await,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    for done in join_all(increments).await {
        done.unwrap();
    }
    let total = store.get(&counter).await.unwrap().unwrap().value;
    assert_eq!(total, (WRITERS * EACH).to_string());
}

pub async fn limits_are_the_same_everywhere(store: &impl Store) {
    let store = store.backend();
    let many = |count: usize| {
        (0..count).fold(Transaction::new(), |tx, n| tx.put(&key(format!("/many/{n}")), bytes("v")))
    };
    let guard = key("/guard");
    store.transact(many(MAX_TRANSACTION_KEYS)).await.unwrap();
    let too_many = store.transact(many(MAX_TRANSACTION_KEYS + 1)).await;
    assert!(matches!(too_many, Err(Error::TooLarge(_))), "{too_many:?}");
    let guarded = |count| many(count).expect_absent(&guard);
    store.transact(guarded(MAX_TRANSACTION_KEYS - 1)).await.unwrap();
    let too_many = store.transact(guarded(MAX_TRANSACTION_KEYS)).await;
    assert!(matches!(too_many, Err(Error::TooLarge(_))), "the guard counts: {too_many:?}");

    let large = |bytes_in_all: usize| {
        let names: Vec<Key> = (0..5).map(|n| key(format!("/large/{n}"))).collect();
        let mut left = bytes_in_all - names.iter().map(|name| name.as_str().len()).sum::<usize>();
        names.iter().enumerate().fold(Transaction::new(), |tx, (n, name)| {
            let size = if n == 4 { left } else { left / 5 };
            left -= size;
            tx.put(name, vec![b'x'; size])
        })
    };
    assert_eq!(large(MAX_TRANSACTION_BYTES).byte_count(), MAX_TRANSACTION_BYTES);
    store.transact(large(MAX_TRANSACTION_BYTES)).await.unwrap();
    let too_large = store.transact(large(MAX_TRANSACTION_BYTES + 1)).await;
    assert!(matches!(too_large, Err(Error::TooLarge(_))), "{too_large:?}");
}

pub async fn a_key_is_written_once_in_a_transaction(store: &impl Store) {
    let store = store.backend();
    let k = key("/twice");
    let twice = Transaction::new().put(&k, bytes("1")).delete(&k);
    assert!(matches!(store.transact(twice).await, Err(Error::Invalid(_))));
    assert_eq!(store.get(&k).await, Ok(None));
}

pub async fn concurrent_creates_have_one_winner(store: &impl Store) {
    let store = store.backend();
    let k = key("/one/winner");
    let creates = (0..32).map(|n| {
        let (store, k) = (Arc::clone(&store), k.clone());
        tokio::spawn(async move { (n, store.create(&k, bytes(n.to_string())).await) })
    });
    let mut winners = Vec::new();
    for outcome in join_all(creates).await {
        match outcome.unwrap() {
            (n, Ok(revision)) => winners.push((n, revision)),
            (_, Err(error)) => assert_eq!(error, Error::AlreadyExists { key: k.clone() }),
        }
    }
    let item = store.get(&k).await.unwrap().unwrap();
    let [(winner, revision)] = winners[..] else { panic!("{} winners", winners.len()) };
    assert_eq!((item.value, item.revision), (bytes(winner.to_string()), revision));
}
