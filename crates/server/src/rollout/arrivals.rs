use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use refit_rollout::has_arrived;
use refit_types::{HostId, Instance};

use super::Rollouts;
use crate::fleet::{Heartbeat, is_superseded};

/// Heartbeats that wait to be stored together with what they mean for the rollout. More than a group has in
/// flight are not waited for: they are stored at once, and what they mean a little later.
const MAX_WAITING: usize = 20_000;

/// Heartbeats that say that a host has arrived at the version. Each is stored in one transaction with the
/// host's outcome and the counts of its group, rather than once for itself and once more for the rollout.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<HashMap<HostId, Arrival>>);

/// A heartbeat that waits.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) since: Instant,
    /// What was known of the host when it came.
    before: Arc<Instance>,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, Arrival>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the heartbeat wait, unless too many do; in the place of an earlier one of the host, if any.
    fn add(&self, host: HostId, heartbeat: &Heartbeat, before: Arc<Instance>) -> bool {
        let mut waiting = self.lock();
        let since = waiting.get(&host).map(|arrival| arrival.since);
        if waiting.len() >= MAX_WAITING && since.is_none() {
            return false;
        }
        let since = since.unwrap_or_else(Instant::now);
        waiting.insert(host, Arrival { heartbeat: heartbeat.clone(), since, before });
        true
    }

    /// The host's heartbeat that waits.
    fn of(&self, host: HostId) -> Option<Heartbeat> {
        self.lock().get(&host).map(|arrival| arrival.heartbeat.clone())
    }

    /// Those that wait now, which they go on doing.
    pub(crate) fn waiting(&self) -> Vec<(HostId, Arrival)> {
        self.lock().iter().map(|(host, arrival)| (*host, arrival.clone())).collect()
    }

    /// Waits no more for that one, if nothing newer has come.
    pub(crate) fn done(&self, host: HostId, stored: &Heartbeat) {
        let mut waiting = self.lock();
        if waiting.get(&host).is_some_and(|arrival| arrival.heartbeat.report == stored.report) {
            waiting.remove(&host);
        }
    }
}

impl Rollouts {
    /// Takes a heartbeat that says that a host in flight has arrived, to be stored with the next decisions;
    /// false for all others.
    pub(crate) fn takes(&self, host: HostId, heartbeat: &Heartbeat) -> bool {
        let Some((known, _)) = self.fleet.known(host) else { return false };
        if is_superseded(&known, heartbeat) {
            return false;
        }
        let waiting = self.arrivals.of(host);
        let (ours, theirs) = (&heartbeat.report.session, waiting.as_ref().map(|it| &it.report.session));
        if theirs.is_some_and(|theirs| theirs.id != ours.id && theirs.started_at > ours.started_at) {
            // The process that has arrived took the place of this one.
            return false;
        }
        let arrives = {
            let state = self.read();
            let engine = state.engine.as_ref().filter(|_| state.is_certain());
            let facts = engine.and_then(|engine| engine.facts(host));
            engine.is_some_and(|engine| has_arrived(engine.plan(), &heartbeat.report))
                && facts.is_some_and(|facts| {
                    let is_new = !facts.on_version || waiting.is_some();
                    facts.member && facts.started.is_some() && facts.ended.is_none() && is_new
                })
        };
        match waiting {
            Some(waiting) if !arrives => {
                // What it says now is stored at once, and must not be undone by what it said before.
                self.arrivals.done(host, &waiting);
                false
            }
            _ => arrives && self.arrivals.add(host, heartbeat, known),
        }
    }

    /// Whether the host has gone elsewhere, and somebody else has stored what it said there.
    pub(super) fn is_overtaken(&self, host: HostId, arrival: &Arrival) -> bool {
        let known = self.fleet.known(host);
        let is_as_before = known.is_some_and(|(known, _)| known.report == arrival.before.report);
        !is_as_before && !self.fleet.hears(host)
    }
}
