//! Contract of leases: expiry, keep-alive, revocation, and leased items inside transactions.

use std::time::Duration;

use refit_backend::{Change, Error, KeyRange, LeaseId, Transaction};

use super::{Store, bytes, key};

/// The shortest lease that all stores grant as asked.
const SHORT: Duration = Duration::from_secs(2);

pub async fn an_expired_lease_takes_its_items_along(store: &impl Store) {
    let store = store.backend();
    let lease = store.grant_lease(SHORT).await.unwrap();
    assert!(lease.ttl >= SHORT);
    let (a, b, free) = (key("/l/a"), key("/l/b"), key("/l/free"));
    let tx = Transaction::new()
        .put_leased(&a, bytes("1"), lease.id)
        .put_leased(&b, bytes("2"), lease.id)
        .put(&free, bytes("3"));
    store.transact(tx).await.unwrap();
    assert_eq!(store.get(&a).await.unwrap().unwrap().lease, Some(lease.id));
    while store.get(&a).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store.get(&b).await, Ok(None));
    let left = store.range(&KeyRange::below(&key("/l")), 10).await.unwrap().items;
    assert_eq!(left.into_iter().map(|item| item.key).collect::<Vec<_>>(), [free]);
    assert_eq!(store.keep_alive(lease.id).await, Err(Error::LeaseNotFound(lease.id)));
}

pub async fn a_lease_that_is_kept_alive_stays(store: &impl Store) {
    let store = store.backend();
    let kept = store.grant_lease(SHORT).await.unwrap();
    let left = store.grant_lease(SHORT).await.unwrap();
    let (a, b) = (key("/l/kept"), key("/l/left"));
    let tx = Transaction::new().put_leased(&a, bytes(""), kept.id).put_leased(&b, bytes(""), left.id);
    store.transact(tx).await.unwrap();
    while store.get(&b).await.unwrap().is_some() {
        store.keep_alive(kept.id).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(store.get(&a).await.unwrap().is_some());
}

pub async fn an_expired_item_is_absent_inside_a_transaction(store: &impl Store) {
    let store = store.backend();
    let lease = store.grant_lease(SHORT).await.unwrap();
    let k = key("/l/lock");
    let locked = store.transact(Transaction::new().put_leased(&k, bytes("me"), lease.id)).await.unwrap();
    let attempt = || Transaction::new().expect_absent(&k).put(&k, bytes("you"));
    let taken = loop {
        match store.transact(attempt()).await {
            Ok(revision) => break revision,
            Err(error) => assert_eq!(error, Error::Conflict { key: k.clone() }),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(taken > locked);
    let late = Transaction::new().expect_revision(&k, locked).put(&key("/l/written"), bytes("late"));
    assert_eq!(store.transact(late).await, Err(Error::Conflict { key: k }));
    assert_eq!(store.get(&key("/l/written")).await, Ok(None));
}

pub async fn revoking_deletes_now(store: &impl Store) {
    let store = store.backend();
    let lease = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    let k = key("/l/revoked");
    let at = store.transact(Transaction::new().put_leased(&k, bytes(""), lease.id)).await.unwrap();
    let mut watch = store.watch(&KeyRange::all(), at).await.unwrap();
    store.revoke_lease(lease.id).await.unwrap();
    assert_eq!(store.get(&k).await, Ok(None));
    assert_eq!(watch.next().await.unwrap().change, Change::Delete(k));
    assert_eq!(store.revoke_lease(lease.id).await, Err(Error::LeaseNotFound(lease.id)));
}

pub async fn rewriting_without_the_lease_keeps_the_item(store: &impl Store) {
    let store = store.backend();
    let lease = store.grant_lease(Duration::from_secs(600)).await.unwrap();
    let (kept, gone) = (key("/l/kept"), key("/l/gone"));
    for k in [&kept, &gone] {
        store.transact(Transaction::new().put_leased(k, bytes("1"), lease.id)).await.unwrap();
    }
    store.put(&kept, bytes("2")).await.unwrap();
    store.revoke_lease(lease.id).await.unwrap();
    assert_eq!(store.get(&kept).await.unwrap().unwrap().lease, None);
    assert_eq!(store.get(&gone).await, Ok(None));
}

pub async fn a_lease_that_is_gone_is_refused(store: &impl Store) {
    let store = store.backend();
    let never = LeaseId(0x7ead_beef);
    let tx = Transaction::new().put(&key("/l/y"), bytes("")).put_leased(&key("/l/x"), bytes(""), never);
    assert_eq!(store.transact(tx).await, Err(Error::LeaseNotFound(never)));
    assert_eq!(store.get(&key("/l/y")).await, Ok(None), "all or nothing");
    assert_eq!(store.keep_alive(never).await, Err(Error::LeaseNotFound(never)));
}
