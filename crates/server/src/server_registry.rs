//! The leased record by which servers of a cluster know each other. Each server keeps its own record alive.

use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Error, Key, KeyRange, LeaseId, Result, SharedBackend, Transaction};
use refit_types::FeatureLevel;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The lease of a server's record: how long a dead server stays listed. It is renewed three times as often.
pub(crate) const TTL: Duration = Duration::from_secs(15);

/// A server of the control plane, as the others see it while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerRecord {
    pub(crate) id: String,
    pub(crate) hostname: String,
    pub(crate) version: String,
    pub(crate) address: String,
    pub(crate) started_at: Timestamp,
    /// Its feature level; none in records from before levels existed.
    #[serde(default)]
    pub(crate) level: FeatureLevel,
}

/// Where the records of servers are stored.
pub(crate) const PREFIX: &str = "/servers/v1/default";

fn prefix() -> Result<Key> {
    Key::new(PREFIX)
}

/// The live servers. Records that cannot be read are left out.
pub(crate) async fn live_servers(backend: &SharedBackend) -> Result<Vec<ServerRecord>> {
    let page = backend.range(&KeyRange::below(&prefix()?), refit_backend::MAX_PAGE_ITEMS).await?;
    Ok(page.items.iter().filter_map(|item| serde_json::from_slice(&item.value).ok()).collect())
}

/// Keeps the record in the store until the server stops, across outages of the store.
pub(crate) async fn stay_listed(
    backend: SharedBackend,
    record: ServerRecord,
    mut stop: watch::Receiver<bool>,
) {
    let mut tick = tokio::time::interval(TTL / 3);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut lease = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        match sign_of_life(&backend, &record, lease).await {
            Ok(kept) => lease = Some(kept),
            Err(error) => {
                tracing::warn!(%error, "could not renew this server's record in the store; retrying")
            }
        }
    }
    if let Some(lease) = lease {
        // If the store is unreachable, the lease expires by itself.
        let _ = backend.revoke_lease(lease).await;
    }
}

async fn sign_of_life(
    backend: &SharedBackend,
    record: &ServerRecord,
    lease: Option<LeaseId>,
) -> Result<LeaseId> {
    if let Some(lease) = lease {
        match backend.keep_alive(lease).await {
            Ok(()) => return Ok(lease),
            Err(Error::LeaseNotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    let lease = backend.grant_lease(TTL).await?.id;
    let value = serde_json::to_vec(record).map_err(|error| Error::Invalid(error.to_string()))?;
    let key = prefix()?.child(&record.id)?;
    backend.transact(Transaction::new().put_leased(&key, value, lease)).await?;
    Ok(lease)
}
