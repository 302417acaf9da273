//! Removes hosts that have been disconnected for 30 days, and clears records that name this server although the host is
//! not connected here. Runs in the background.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::{HostId, HostRecord};
use tokio::sync::watch;
use uuid::Uuid;

use super::Rollouts;
use crate::fleet::{FleetView, is_forgotten};

/// How often hosts that were disconnected for too long are removed.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How often stale connections are cleared.
const CLEAR_EVERY: Duration = Duration::from_secs(30);

impl Rollouts {
    /// Removes hosts that have been away for too long, until the server stops.
    pub(crate) async fn expire(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut forget = tokio::time::interval(FORGET_EVERY);
        let mut clear = tokio::time::interval(CLEAR_EVERY);
        loop {
            let forgets = tokio::select! {
                _ = forget.tick() => true,
                _ = clear.tick() => false,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match forgets {
                true => self.forget_lost((self.now)()).await,
                false => self.clear_stale_connections().await,
            }
        }
    }

    /// Removes the hosts that were away for too long by then.
    pub(crate) async fn forget_lost(&self, now: Timestamp) {
        let view = self.fleet.view();
        // A scan of the fleet runs on a blocking thread.
        let walk = tokio::task::spawn_blocking(move || {
            let lost = view.hosts.iter().filter(|(_, known)| is_long_lost(&view, &known.value, now));
            lost.map(|(host, known)| (host, known.value.hostname.clone())).collect::<Vec<_>>()
        });
        for (host, hostname) in walk.await.unwrap_or_default() {
            let holds = |host_record: &HostRecord| is_long_lost(&self.fleet.view(), host_record, now);
            let message = format!("forgot {hostname}, which was away for 30 days");
            let event = || self.event("node.removed", &format!("node/{host}"), &message);
            match self.remove_if(host, holds, event).await {
                Ok(true) => {
                    tracing::info!(target: "audit", %host, %hostname, "forgot a host that was away for 30 days")
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, %host, "could not remove a host that has been away for 30 days; retrying within the hour")
                }
            }
        }
    }

    /// Disconnects hosts whose records name this server although they are not connected here: their disconnect could
    /// not be stored, or an earlier heartbeat was stored after it. Nothing else would correct these records.
    pub(super) async fn clear_stale_connections(&self) {
        let (view, server) = (self.fleet.view(), self.server.clone());
        let walk = tokio::task::spawn_blocking(move || {
            let is_stale = |host: HostId, host_record: &HostRecord| {
                host_record.server.as_deref() == Some(&*server) && view.connections.get(host).is_none()
            };
            let stale = view.hosts.iter().filter(|(host, known)| is_stale(*host, &known.value));
            let session =
                |host_record: &HostRecord| host_record.report.as_ref().map(|report| report.session.id);
            stale.filter_map(|(host, known)| Some((host, session(&known.value)?))).collect::<Vec<(_, Uuid)>>()
        });
        for (host, session) in walk.await.unwrap_or_default() {
            self.fleet.disconnected(host, None, session).await;
        }
    }
}

/// A connected host is never lost, even if a wrong clock makes its last heartbeat look old.
pub(super) fn is_long_lost(view: &FleetView, host_record: &HostRecord, now: Timestamp) -> bool {
    is_forgotten(host_record, now) && view.is_certain() && view.lost_since(host_record).is_some()
}
