//! An immutable view of the fleet's state, published by its owner and read by everybody else without a lock. Hosts,
//! groups and answers of one view are consistent with each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_backend::Revision;
use refit_rollout::{HostMap, NamedVersion, RolloutView, Stopped};
use refit_types::{HostId, HostRecord};
use uuid::Uuid;

use super::connection::Connection;
use super::counters::Counters;
use super::host_records::UnreadableHost;
use super::store_snapshot::{StoreSnapshot, Versioned};
use crate::find::Answer;

/// A server without contact to its store for so long tells no host to upgrade: its state may be stale.
pub(crate) const KNOWS_FOR: Duration = Duration::from_secs(5);

/// What this server knows at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetView {
    pub(crate) hosts: HostMap<Versioned<Arc<HostRecord>>>,
    /// Hosts whose records are there and cannot be read.
    pub(crate) unreadable: Arc<BTreeMap<HostId, Versioned<Arc<UnreadableHost>>>>,
    /// The hosts that are connected to this server.
    pub(crate) connections: HostMap<Arc<Connection>>,
    pub(crate) counters: Counters,
    pub(crate) snapshot: Arc<StoreSnapshot>,
    /// None before everything was read once, while no version is chosen, and while an epoch begins.
    pub(crate) rollout: Option<RolloutView>,
    /// Why the rollout is stopped, while there is no view of it that says so.
    pub(crate) stopped: Option<Stopped>,
    /// The version that `find` names.
    pub(crate) advertised: Arc<str>,
    /// When other servers were found gone.
    pub(crate) deaths: Arc<HashMap<Box<str>, Timestamp>>,
    /// When the store last answered.
    pub(crate) last_store_contact: Option<Instant>,
    /// Whether every record was read once.
    pub(crate) is_loaded: bool,
}

impl FleetView {
    /// Whether the view is recent enough to tell a host to upgrade.
    pub(crate) fn is_certain(&self) -> bool {
        self.last_store_contact.is_some_and(|contact| contact.elapsed() < KNOWS_FOR)
    }

    /// The host's record, and when that was written.
    pub(crate) fn known(&self, host: HostId) -> Option<(Arc<HostRecord>, Revision)> {
        self.hosts.get(host).map(|known| (known.value.clone(), known.revision))
    }

    /// Up to `limit` hosts after `after` that `matches` accepts, and whether there may be more.
    pub(crate) fn page(
        &self,
        after: Option<HostId>,
        limit: usize,
        matches: impl Fn(&HostRecord) -> bool,
    ) -> (Vec<Arc<HostRecord>>, bool) {
        let mut page = Vec::new();
        for (_, known) in self.hosts.iter_after(after).filter(|(_, known)| matches(&known.value)) {
            if page.len() == limit {
                return (page, true);
            }
            page.push(known.value.clone());
        }
        (page, false)
    }

    /// Since when no server hears the host.
    pub(crate) fn lost_since(&self, host_record: &HostRecord) -> Option<Timestamp> {
        lost_since(&self.snapshot, &self.deaths, host_record)
    }

    /// The time of the host's last heartbeat, as precisely as this server knows it.
    pub(crate) fn last_seen(&self, host_record: &HostRecord) -> Timestamp {
        let heard = self.connections.get(host_record.host_id).and_then(|connection| connection.heard_at());
        heard.map_or(host_record.last_seen, |heard| heard.max(host_record.last_seen))
    }

    /// The update instruction for the host with this UUID, or for an unknown host.
    pub(crate) fn answer(&self, host: Option<HostId>, now: Timestamp) -> Answer {
        let target = || Answer {
            version: self.advertised.clone(),
            auto_update: false,
            jitter_seconds: 0,
            attempt: 0,
            withheld: None,
        };
        match self.named_to(host) {
            NamedVersion::LastGood(good) => Answer { version: good.to_string().into(), ..target() },
            NamedVersion::Withheld(stopped) => Answer { withheld: Some(stopped), ..target() },
            NamedVersion::Target => {
                let rollout = self.rollout.as_ref().filter(|_| self.is_certain());
                let Some(rollout) = rollout else { return target() };
                let refit_rollout::Answer { auto_update, jitter_seconds, attempt } =
                    rollout.answer(host, now);
                Answer { auto_update, jitter_seconds, attempt, ..target() }
            }
        }
    }

    /// Which version a host is named. A UUID is unknown only after all records were read.
    fn named_to(&self, host: Option<HostId>) -> NamedVersion<'_> {
        if host.is_some_and(|host| !self.is_loaded || self.has(host)) {
            return NamedVersion::Target;
        }
        let last_good = self.snapshot.rollout().and_then(|plan| plan.last_good.as_ref());
        NamedVersion::for_new_host(self.stopped_now(), last_good)
    }

    /// Why the rollout is stopped, if it is, as far as this server can tell now.
    fn stopped_now(&self) -> Option<Stopped> {
        if self.last_store_contact.is_some() && self.snapshot.version.is_none() {
            return None;
        }
        match &self.rollout {
            _ if !self.is_certain() => Some(Stopped::Unclear),
            Some(rollout) => rollout.stopped(),
            None => self.stopped,
        }
    }

    /// Whether there is a record of the host.
    fn has(&self, host: HostId) -> bool {
        self.hosts.get(host).is_some() || self.unreadable.contains_key(&host)
    }

    /// The attempt for which a host's agent should wake its updater now; 0 where attempts are not counted.
    pub(crate) fn due_attempt(&self, host: HostId, now: Timestamp) -> Option<u64> {
        self.rollout.as_ref().filter(|_| self.is_certain())?.hint(host, now)
    }

    /// The same for one process of the host: of two that report as one host, only one is woken.
    pub(crate) fn hint(&self, host: HostId, session: Uuid, now: Timestamp) -> Option<u64> {
        let known = &self.hosts.get(host)?.value;
        let is_its_own = known.report.as_ref().is_some_and(|report| report.session.id == session);
        self.due_attempt(host, now).filter(|_| is_its_own)
    }
}

/// Since when no server hears the host.
pub(crate) fn lost_since(
    snapshot: &StoreSnapshot,
    deaths: &HashMap<Box<str>, Timestamp>,
    host_record: &HostRecord,
) -> Option<Timestamp> {
    match host_record.server.as_deref() {
        Some(server) if snapshot.servers.contains_key(server) => None,
        Some(server) => Some(deaths.get(server).copied().unwrap_or(host_record.last_seen)),
        None => Some(host_record.last_seen),
    }
}
