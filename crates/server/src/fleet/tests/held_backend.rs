//! A backend that can hold writes back, to test late commits.

use std::sync::Arc;
use std::time::Duration;

use refit_backend::{Result, SharedBackend, Transaction};
use refit_testbed::{Intercept, InterceptedBackend, eventually};
use tokio::sync::watch;

/// Holds transactions that write below a prefix.
#[derive(Debug)]
pub(crate) struct HeldWrites {
    prefix: watch::Sender<Option<&'static str>>,
    held: watch::Sender<u32>,
}

/// A store that can hold writes back.
pub(crate) type HeldBackend = InterceptedBackend<HeldWrites>;

/// A store before which nothing is held yet.
pub(crate) fn held_backend(inner: SharedBackend) -> Arc<HeldBackend> {
    InterceptedBackend::new(
        inner,
        HeldWrites { prefix: watch::Sender::new(None), held: watch::Sender::new(0) },
    )
}

impl HeldWrites {
    pub(crate) fn hold(&self, prefix: &'static str) {
        self.prefix.send_replace(Some(prefix));
    }

    pub(crate) fn release(&self) {
        self.prefix.send_replace(None);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held() > 0
    }

    /// How many transactions were held so far.
    pub(crate) fn held(&self) -> u32 {
        *self.held.borrow()
    }

    pub(crate) async fn until_held(&self) {
        eventually("a transaction is held", Duration::from_secs(30), async || self.is_held()).await;
    }
}

#[tonic::async_trait]
impl Intercept for HeldWrites {
    async fn before_transact(&self, transaction: &Transaction) -> Result<()> {
        let is_below =
            |prefix: &str| transaction.writes().iter().any(|write| write.key().as_str().starts_with(prefix));
        let mut held = self.prefix.subscribe();
        let is_free = |prefix: &Option<&'static str>| prefix.is_none_or(|prefix| !is_below(prefix));
        if !is_free(&held.borrow_and_update()) {
            self.held.send_modify(|held| *held += 1);
            let _ = held.wait_for(|prefix| is_free(prefix)).await;
        }
        Ok(())
    }
}
