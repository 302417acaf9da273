//! The lease table of backends that expire leases themselves, which are SQLite and memory. etcd keeps its own.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::{Error, Lease, LeaseId, Result};

/// The leases of a store that keeps time itself. Pure: the time is always an argument.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    leases: HashMap<LeaseId, Running>,
    /// The same leases by deadline: checked before every read and write, so a scan would be too slow.
    deadlines: BTreeSet<(Instant, LeaseId)>,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    ttl: Duration,
    deadline: Instant,
}

impl LeaseTable {
    /// Starts a lease, or restarts one that was found in the store.
    pub(crate) fn start(&mut self, lease: Lease, now: Instant) {
        self.end(lease.id);
        let deadline = now.checked_add(lease.ttl).unwrap_or(now + FOR_EVER);
        let running = Running { ttl: lease.ttl, deadline };
        self.leases.insert(lease.id, running);
        self.deadlines.insert((running.deadline, lease.id));
    }

    /// Extends the lease by its full TTL, unless it has expired.
    pub(crate) fn keep_alive(&mut self, id: LeaseId, now: Instant) -> Result<()> {
        match self.leases.get(&id) {
            Some(running) if now < running.deadline => {
                let lease = Lease { id, ttl: running.ttl };
                self.start(lease, now);
                Ok(())
            }
            _ => Err(Error::LeaseNotFound(id)),
        }
    }

    pub(crate) fn is_live(&self, id: LeaseId, now: Instant) -> bool {
        self.leases.get(&id).is_some_and(|running| now < running.deadline)
    }

    /// Forgets the lease; whether it was known.
    pub(crate) fn end(&mut self, id: LeaseId) -> bool {
        let ended = self.leases.remove(&id);
        ended.is_some_and(|running| self.deadlines.remove(&(running.deadline, id)))
    }

    /// The leases whose time is over and whose items are still to be deleted.
    pub(crate) fn expired(&self, now: Instant) -> Vec<LeaseId> {
        self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, id)| *id).collect()
    }

    /// When the next one runs out.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

/// A lease name that nobody guesses or meets twice.
pub(crate) fn new_lease(ttl: Duration) -> Lease {
    let id = rand::random_range(1..=i64::MAX);
    Lease { id: LeaseId(id), ttl: ttl.max(MIN_TTL) }
}

/// Replaces TTLs that overflow the clock.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Shorter leases would end between two keep-alives on a busy machine.
const MIN_TTL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lives_until_its_deadline_and_not_at_it() {
        let start = Instant::now();
        let lease = new_lease(Duration::from_secs(10));
        let mut table = LeaseTable::default();
        table.start(lease, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(table.is_live(lease.id, at(9)) && table.expired(at(9)).is_empty());
        table.keep_alive(lease.id, at(9)).unwrap();
        assert_eq!(table.next_deadline(), Some(at(19)));
        assert!(!table.is_live(lease.id, at(19)));
        assert_eq!(table.expired(at(19)), [lease.id]);
        assert_eq!(table.keep_alive(lease.id, at(19)), Err(Error::LeaseNotFound(lease.id)));
    }
}
