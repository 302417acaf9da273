//! The lock of one migration: a key under a lease, held by the server that applies it. Only the runner takes it.

use std::time::Duration;

use refit_backend::{Change, Error, Key, KeyRange, Lease, Read, Result, SharedBackend, Transaction};

use crate::Guarded;

/// How long to trust a watch on somebody else's lock before looking again.
const RECHECK: Duration = Duration::from_secs(5);

/// The lock of one migration, held by this server while its lease is kept alive.
#[derive(Debug)]
pub(crate) struct Lock {
    backend: SharedBackend,
    lease: Lease,
    /// The store, for writes that are only done while the lock holds.
    pub(crate) guarded: Guarded,
}

pub(crate) fn lock_key(number: u32) -> Key {
    Key::new(format!("/migrations/lock/{number:04}")).expect("digits make a key")
}

/// Who holds the lock of any migration, if anyone does.
pub(crate) async fn holder(backend: &SharedBackend) -> Result<Option<String>> {
    let locks = KeyRange::below(&Key::new("/migrations/lock")?);
    let page = backend.range(&locks, 1).await?;
    Ok(page.items.first().map(|item| String::from_utf8_lossy(&item.value).into_owned()))
}

impl Lock {
    /// Takes the lock if nobody has it.
    pub(crate) async fn try_take(
        backend: &SharedBackend,
        number: u32,
        server: &str,
        ttl: Duration,
    ) -> Result<Option<Self>> {
        let key = lock_key(number);
        if backend.get(&key).await?.is_some() {
            return Ok(None);
        }
        let lease = backend.grant_lease(ttl).await?;
        let take =
            Transaction::new().expect_absent(&key).put_leased(&key, server.as_bytes().to_vec(), lease.id);
        match backend.transact(take).await {
            Ok(revision) => {
                let guarded = Guarded::new(backend.clone(), key, revision);
                Ok(Some(Self { backend: backend.clone(), lease, guarded }))
            }
            Err(error) => {
                release(backend, lease).await;
                match error {
                    Error::Conflict { .. } | Error::LeaseNotFound(_) => Ok(None),
                    other => Err(other),
                }
            }
        }
    }

    /// Waits until the one who has the lock gives it up or dies.
    pub(crate) async fn wait_until_free(backend: &SharedBackend, number: u32) -> Result<()> {
        let key = lock_key(number);
        loop {
            let snapshot = backend.read(&[Read::Key(key.clone())]).await?;
            if snapshot.item(0).is_none() {
                return Ok(());
            }
            let only_it = KeyRange::between(&key, &key.child("0")?);
            let mut watch = backend.watch(&only_it, snapshot.revision).await?;
            let freed = async {
                while let Ok(event) = watch.next().await {
                    if matches!(event.change, Change::Delete(_)) {
                        return;
                    }
                }
                // A watch that broke says nothing about the lock.
                std::future::pending::<()>().await;
            };
            let _ = tokio::time::timeout(RECHECK, freed).await;
        }
    }

    /// Keeps the lock alive; returns when it is lost for good.
    pub(crate) async fn keep(backend: SharedBackend, lease: Lease) {
        let mut beat = tokio::time::interval(lease.ttl / 3);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            match backend.keep_alive(lease.id).await {
                Ok(()) => {}
                Err(Error::LeaseNotFound(_)) => return,
                // Nothing can be written while the store does not answer, and the guard decides afterwards.
                Err(error) => {
                    tracing::warn!(%error, "cannot keep the migration lock alive; another server takes it when its lease ends")
                }
            }
        }
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    /// Releases the lock without a record, so that another server can take it at once.
    pub(crate) async fn abandon(self) {
        release(&self.backend, self.lease).await;
    }

    pub(crate) fn into_guarded(self) -> Guarded {
        self.guarded
    }
}

pub(crate) async fn release(backend: &SharedBackend, lease: Lease) {
    if let Err(error) = backend.revoke_lease(lease.id).await
        && !matches!(error, Error::LeaseNotFound(_))
    {
        tracing::warn!(%error, "cannot release the migration lock; it ends with its lease");
    }
}
