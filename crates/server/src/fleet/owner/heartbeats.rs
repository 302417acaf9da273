//! Heartbeats. News is written by other tasks, one write at a time for each host. A heartbeat that completes a host's
//! upgrade is deferred, so that it is stored together with the decision about it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_backend::Result;
use refit_rollout::has_arrived;
use refit_types::{HostId, HostRecord};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{BesideMessage, HeartbeatMessage, MAX_HOST_WRITES, Owner};
use crate::fleet::host_write::{HostChange, HostState, write_host};
use crate::fleet::record::{Heartbeat, after_heartbeat, is_superseded};
use crate::fleet::view::KNOWS_FOR;
use crate::fleet::{HeartbeatResult, Versioned};

/// How long a heartbeat is deferred before it is stored alone.
const DEFER_FOR: Duration = Duration::from_secs(5);
/// The limit of deferred heartbeats, more than groups have in flight. Beyond it they are stored at once, and their
/// outcomes a little later.
const MAX_DEFERRED: usize = 20_000;

type Reply = oneshot::Sender<Result<HeartbeatResult>>;

/// A heartbeat that reports that a host has reached the version. It is stored in one transaction with the host's
/// outcome and the counts of its group, which saves one write for each host.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) heartbeat: Box<Heartbeat>,
    since: Instant,
    /// The host's record when it arrived.
    before: Arc<HostRecord>,
    /// The record including the heartbeat, if it was passed to the engine.
    pub(super) told: Option<Arc<HostRecord>>,
}

/// An event of a host that may need a write.
#[derive(Debug)]
pub(super) enum HostWork {
    Heartbeat(Box<Heartbeat>, Option<Reply>),
    Departure(Uuid),
    /// Read its record again: a decision conflicted with a newer one.
    Refresh,
}

/// A host whose record is being written, and the work that is queued behind it.
#[derive(Debug, Default)]
pub(super) struct HostQueue {
    /// Who waits for the write.
    reply: Option<Reply>,
    /// Whether a decision waits for the result.
    is_refresh: bool,
    /// At most one for each stream of the host, because a stream waits for its reply.
    next: VecDeque<HostWork>,
}

impl Owner {
    pub(super) fn is_certain(&self) -> bool {
        self.last_store_contact.is_some_and(|contact| contact.elapsed() < KNOWS_FOR)
    }

    pub(super) fn take_heartbeat(&mut self, message: HeartbeatMessage) {
        match message {
            HeartbeatMessage::Heartbeat { host, connection, heartbeat, reply } => {
                if self.connections.get(host).is_none_or(|known| known.stream != connection.stream) {
                    self.connections.insert(host, connection);
                    self.unpublished.is_dirty = true;
                }
                self.add_work(host, HostWork::Heartbeat(heartbeat, Some(reply)));
            }
            HeartbeatMessage::Disconnected { host, stream, session } => {
                if let Some(connection) = self.connections.get(host) {
                    if stream != Some(connection.stream) {
                        return;
                    }
                    self.connections.remove(host);
                    self.unpublished.is_dirty = true;
                }
                self.add_work(host, HostWork::Departure(session));
            }
        }
    }

    pub(super) fn add_work(&mut self, host: HostId, work: HostWork) {
        match self.busy.get_mut(&host) {
            Some(queue) => queue.next.push_back(work),
            None => drop(self.begin_work(host, work)),
        }
    }

    /// Handles the work without a write if possible. Returns whether it began a write.
    fn begin_work(&mut self, host: HostId, work: HostWork) -> bool {
        let known = self.records.hosts.get(host).cloned();
        let is_unreadable = self.records.unreadable.contains_key(&host);
        let (change, reply) = match work {
            HostWork::Refresh => return self.begin_write(host, None, HostChange::Nothing, None),
            HostWork::Departure(session) => (HostChange::Departure(session), None),
            HostWork::Heartbeat(heartbeat, reply) => (HostChange::Heartbeat(heartbeat), reply),
        };
        let is_deferred = match (&change, &known) {
            // A superseded process is recorded as a duplicate and changes nothing else.
            (HostChange::Heartbeat(heartbeat), Some(known)) if is_superseded(&known.value, heartbeat) => {
                false
            }
            (HostChange::Heartbeat(heartbeat), Some(known)) if !is_unreadable => {
                let is_deferred = self.try_defer(host, heartbeat, known);
                if !is_deferred {
                    // The deferred heartbeat is older and must not overwrite this one.
                    self.undefer(host);
                }
                is_deferred
            }
            _ => false,
        };
        let is_noted = |known: &Versioned<Arc<HostRecord>>| {
            change.apply(&known.value, &self.server, (self.now)()).is_none()
        };
        // A record that cannot be read must not be overwritten: the heartbeat is accepted and not stored.
        if is_deferred || is_unreadable || known.as_ref().is_some_and(is_noted) {
            let duplicate = known.is_some_and(|known| known.value.duplicate_at.is_some());
            self.reply(reply, Ok(HeartbeatResult::Known { duplicate }));
            return false;
        }
        self.begin_write(host, known, change, reply)
    }

    fn begin_write(
        &mut self,
        host: HostId,
        known: Option<Versioned<Arc<HostRecord>>>,
        change: HostChange,
        reply: Option<Reply>,
    ) -> bool {
        let is_refresh = matches!(change, HostChange::Nothing);
        self.busy.insert(host, HostQueue { reply, is_refresh, next: VecDeque::new() });
        self.host_writes += 1;
        let (backend, server, now) = (self.backend.clone(), self.server.clone(), self.now);
        let done = self.inbox.beside_sender.clone();
        tokio::spawn(async move {
            let is_departure = matches!(change, HostChange::Departure(_));
            let outcome = write_host(backend, server, now, host, known, change).await;
            if let (true, Err(error)) = (is_departure, &outcome) {
                tracing::warn!(%error, %host, "could not store that a host disconnected; it is retried within a minute");
            }
            // Sending fails only when the server stops.
            let _ = done.send(BesideMessage::HostWritten { host, outcome }).await;
        });
        true
    }

    pub(super) fn host_written(&mut self, host: HostId, outcome: Result<HostState>) {
        self.host_writes = self.host_writes.saturating_sub(1);
        let result = match outcome {
            Err(error) => Err(error),
            Ok(state) => {
                let result = match &state {
                    HostState::Known(known) => {
                        HeartbeatResult::Known { duplicate: known.value.duplicate_at.is_some() }
                    }
                    HostState::Unreadable(_) => HeartbeatResult::Known { duplicate: false },
                    HostState::Removed(_) => {
                        self.connections.remove(host);
                        HeartbeatResult::Removed
                    }
                };
                self.take_host_state(host, state);
                Ok(result)
            }
        };
        let queue = self.busy.get_mut(&host);
        let (reply, is_refresh) = queue.map_or((None, false), |queue| (queue.reply.take(), queue.is_refresh));
        self.reply(reply, result);
        self.release(host);
        if is_refresh {
            self.decision_state.resume();
        }
    }

    /// Continues with the work that is queued for a host.
    pub(super) fn release(&mut self, host: HostId) {
        let Some(mut queue) = self.busy.remove(&host) else { return };
        while let Some(work) = queue.next.pop_front() {
            if self.begin_work(host, work) {
                if let Some(begun) = self.busy.get_mut(&host) {
                    begun.next = queue.next;
                }
                return;
            }
        }
    }

    /// Reserves a host's record for a decision that is being stored; heartbeats of the host queue up meanwhile.
    pub(super) fn reserve(&mut self, host: HostId) {
        self.busy.entry(host).or_default();
    }

    fn reply(&mut self, reply: Option<Reply>, result: Result<HeartbeatResult>) {
        if let Some(reply) = reply {
            self.unpublished.replies.push((reply, result));
            self.unpublished.is_dirty = true;
        }
    }

    /// Defers a heartbeat that reports that a host in flight has reached the version; false for all others.
    fn try_defer(&mut self, host: HostId, heartbeat: &Heartbeat, known: &Versioned<Arc<HostRecord>>) -> bool {
        let waiting = self.deferred.get(&host);
        let ours = &heartbeat.report.session;
        let theirs = waiting.map(|deferred| &deferred.heartbeat.report.session);
        if theirs.is_some_and(|theirs| theirs.id != ours.id && theirs.started_at > ours.started_at) {
            // This process was superseded by the one whose heartbeat is deferred: its report changes nothing.
            return true;
        }
        let engine = self.engine.as_ref().filter(|_| self.is_certain());
        let arrives = engine.is_some_and(|engine| {
            has_arrived(engine.plan(), &heartbeat.report)
                && engine.view().facts(host).is_some_and(|facts| {
                    let is_new = !facts.on_version || waiting.is_some();
                    (facts.member || facts.newcomer)
                        && !facts.carried
                        && facts.started.is_some()
                        && facts.ended.is_none()
                        && is_new
                })
        });
        if !arrives || (waiting.is_none() && self.deferred.len() >= MAX_DEFERRED) {
            return false;
        }
        let (since, was_told) = waiting
            .map_or_else(|| (Instant::now(), false), |waiting| (waiting.since, waiting.told.is_some()));
        let (heartbeat, before) = (Box::new(heartbeat.clone()), known.value.clone());
        self.deferred.insert(host, Deferred { heartbeat, since, before, told: None });
        self.connections.get(host).into_iter().for_each(|connection| connection.set_deferred(true));
        if was_told {
            self.tell_deferred_host(host);
        }
        true
    }

    /// Drops the deferred heartbeat of a host, also from the engine.
    fn undefer(&mut self, host: HostId) {
        let Some(deferred) = self.forget_deferred(host) else { return };
        if deferred.told.is_some() {
            self.host_changed(host);
        }
    }

    pub(super) fn forget_deferred(&mut self, host: HostId) -> Option<Deferred> {
        self.connections.get(host).into_iter().for_each(|connection| connection.set_deferred(false));
        self.deferred.remove(&host)
    }

    /// Passes deferred heartbeats to the engine, as the records that they will become.
    pub(super) fn tell_deferred(&mut self) {
        let hosts: Vec<HostId> = self
            .deferred
            .iter()
            .filter(|(_, deferred)| deferred.told.is_none())
            .map(|(host, _)| *host)
            .collect();
        hosts.into_iter().for_each(|host| self.tell_deferred_host(host));
    }

    fn tell_deferred_host(&mut self, host: HostId) {
        let Some(deferred) = self.deferred.get(&host) else { return };
        let known = self.records.hosts.get(host).filter(|known| !self.is_overtaken(host, known, deferred));
        let next = known.and_then(|known| {
            let next = after_heartbeat(&known.value, &deferred.heartbeat, &self.server, self.clock())?;
            Some((Arc::new(next), known.revision))
        });
        let Some((next, revision)) = next else { return self.undefer(host) };
        let facts = self.engine.as_ref().map(|engine| self.facts(engine.plan(), &next));
        if let (Some(engine), Some(facts)) = (&mut self.engine, facts) {
            engine.host(&facts, revision);
            if let Some(deferred) = self.deferred.get_mut(&host) {
                deferred.told = Some(next);
            }
        }
    }

    /// Whether the host has moved to another server, which has stored a newer report.
    fn is_overtaken(&self, host: HostId, known: &Versioned<Arc<HostRecord>>, deferred: &Deferred) -> bool {
        known.value.report != deferred.before.report && self.connections.get(host).is_none()
    }

    /// Stores heartbeats on their own that were deferred for too long.
    pub(super) fn flush_overdue(&mut self) {
        let overdue = self.deferred.iter().filter(|(_, deferred)| deferred.since.elapsed() > DEFER_FOR);
        let overdue: Vec<HostId> = overdue.map(|(host, _)| *host).collect();
        let room = MAX_HOST_WRITES.saturating_sub(self.host_writes);
        let free = overdue.into_iter().filter(|host| !self.busy.contains_key(host)).take(room);
        for host in free.collect::<Vec<_>>() {
            let Some(deferred) = self.deferred.get(&host) else { continue };
            let known = self.records.hosts.get(host).cloned();
            let is_overtaken = known.as_ref().is_none_or(|known| self.is_overtaken(host, known, deferred));
            let heartbeat = deferred.heartbeat.clone();
            self.undefer(host);
            if !is_overtaken {
                self.begin_write(host, known, HostChange::Heartbeat(heartbeat), None);
            }
        }
    }

    /// Drops a deferred heartbeat that has been stored.
    pub(super) fn deferred_stored(&mut self, host: HostId, stored: &HostRecord) {
        let is_stored = |deferred: &Deferred| stored.report.as_ref() == Some(&deferred.heartbeat.report);
        if self.deferred.get(&host).is_some_and(is_stored) {
            self.forget_deferred(host);
        }
    }
}
