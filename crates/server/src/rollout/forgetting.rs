use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::Instance;
use tokio::sync::watch;

use super::Rollouts;
use crate::fleet::is_forgotten;

/// How often to look for hosts that have been away for too long.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How often to look for hosts whose departure could not be stored.
const LET_GO_EVERY: Duration = Duration::from_secs(30);
/// No stream has this number.
const NO_STREAM: u64 = u64::MAX;

impl Rollouts {
    /// Removes hosts that have been away for too long, until the server stops.
    pub(crate) async fn forget_the_lost(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut forget = tokio::time::interval(FORGET_EVERY);
        let mut let_go = tokio::time::interval(LET_GO_EVERY);
        loop {
            let forgets = tokio::select! {
                _ = forget.tick() => true,
                _ = let_go.tick() => false,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match forgets {
                true => self.forget_lost((self.now)()).await,
                false => self.let_go().await,
            }
        }
    }

    /// Removes the hosts that were away for too long by then.
    pub(crate) async fn forget_lost(&self, now: Timestamp) {
        let (lost, _) = self.fleet.page(None, usize::MAX, |instance| self.is_long_lost(instance, now));
        for instance in lost {
            let host = instance.host_id;
            let message = format!("forgot {}, which was away for 30 days", instance.hostname);
            let event = || self.event("node.removed", &format!("node/{host}"), &message);
            match self.remove_if(host, |instance| self.is_long_lost(instance, now), event).await {
                Ok(true) => {
                    tracing::info!(target: "audit", %host, hostname = %instance.hostname, "forgot a host that was away for 30 days")
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, %host, "a host that is away could not be forgotten"),
            }
        }
    }

    /// Whoever is heard is not away, whatever a clock that was set wrongly makes of the time.
    pub(super) fn is_long_lost(&self, instance: &Instance, now: Timestamp) -> bool {
        let state = self.read();
        is_forgotten(instance, now) && state.is_certain() && state.lost_since(instance).is_some()
    }

    /// Notes that hosts are gone which are said to be heard here and are not: their departure could not be
    /// stored, or what they said before it was stored later. Nobody would miss them otherwise.
    pub(super) async fn let_go(&self) {
        let is_gone = |instance: &Instance| {
            instance.server.as_deref() == Some(&*self.server) && !self.fleet.hears(instance.host_id)
        };
        let (gone, _) = self.fleet.page(None, usize::MAX, is_gone);
        for instance in gone {
            if let Some(report) = &instance.report {
                self.fleet.departed(instance.host_id, NO_STREAM, report.session.id).await;
            }
        }
    }
}
