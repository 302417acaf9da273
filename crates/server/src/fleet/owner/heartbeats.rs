//! What hosts say. What is new in it is written beside the owner, one write at a time for each host; what tells that
//! a host in flight has arrived waits to be stored with the decision about it.

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
use crate::fleet::{Heard, Versioned};

/// How long a heartbeat waits for a decision to be stored with before it is stored alone.
const DEFER_FOR: Duration = Duration::from_secs(5);
/// Heartbeats that wait so. More than a group has in flight are not waited for: they are stored at once, and what
/// they mean a little later.
const MAX_DEFERRED: usize = 20_000;

type Reply = oneshot::Sender<Result<Heard>>;

/// A heartbeat that says that a host has arrived at the version. It is stored in one transaction with the host's
/// outcome and the counts of its group, rather than once for itself and once more for the rollout.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) heartbeat: Box<Heartbeat>,
    since: Instant,
    /// What was known of the host when it came.
    before: Arc<HostRecord>,
    /// The record with the heartbeat in it, if the engine knows the host by that.
    pub(super) told: Option<Arc<HostRecord>>,
}

/// Something that may have to be written of a host.
#[derive(Debug)]
pub(super) enum HostWork {
    Heartbeat(Box<Heartbeat>, Option<Reply>),
    Departure(Uuid),
    /// Its record is to be read again: a decision found that it had changed.
    Refresh,
}

/// A host whose record is being written, and what comes after that.
#[derive(Debug, Default)]
pub(super) struct HostQueue {
    /// Who waits for the write.
    reply: Option<Reply>,
    /// Whether a decision waits for what is read.
    is_refresh: bool,
    /// At most one for each stream of the host, because a stream waits for its answer.
    next: VecDeque<HostWork>,
}

impl Owner {
    pub(super) fn is_certain(&self) -> bool {
        self.heard.is_some_and(|heard| heard.elapsed() < KNOWS_FOR)
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

    /// Does what can be done at once, and begins a write for the rest; whether it did.
    fn begin_work(&mut self, host: HostId, work: HostWork) -> bool {
        let known = self.records.hosts.get(host).cloned();
        let is_unreadable = self.records.unreadable.contains_key(&host);
        let (change, reply) = match work {
            HostWork::Refresh => return self.begin_write(host, None, HostChange::Nothing, None),
            HostWork::Departure(session) => (HostChange::Departure(session), None),
            HostWork::Heartbeat(heartbeat, reply) => (HostChange::Heartbeat(heartbeat), reply),
        };
        let is_deferred = match (&change, &known) {
            // A process whose place another one has taken is noted, and changes nothing else.
            (HostChange::Heartbeat(heartbeat), Some(known)) if is_superseded(&known.value, heartbeat) => {
                false
            }
            (HostChange::Heartbeat(heartbeat), Some(known)) if !is_unreadable => {
                let is_deferred = self.try_defer(host, heartbeat, known);
                if !is_deferred {
                    // What it says now must not be undone by what it said before.
                    self.undefer(host);
                }
                is_deferred
            }
            _ => false,
        };
        let is_noted = |known: &Versioned<Arc<HostRecord>>| {
            change.apply(&known.value, &self.server, (self.now)()).is_none()
        };
        // What cannot be read must not be written: the host is heard, and nothing is stored of it.
        if is_deferred || is_unreadable || known.as_ref().is_some_and(is_noted) {
            let duplicate = known.is_some_and(|known| known.value.duplicate_at.is_some());
            self.reply(reply, Ok(Heard::Known { duplicate }));
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
                tracing::warn!(%error, %host, "could not store that a host has disconnected");
            }
            // Without an owner the server is stopping.
            let _ = done.send(BesideMessage::HostWritten { host, outcome }).await;
        });
        true
    }

    pub(super) fn host_written(&mut self, host: HostId, outcome: Result<HostState>) {
        self.host_writes = self.host_writes.saturating_sub(1);
        let heard = match outcome {
            Err(error) => Err(error),
            Ok(state) => {
                let heard = match &state {
                    HostState::Known(known) => Heard::Known { duplicate: known.value.duplicate_at.is_some() },
                    HostState::Unreadable(_) => Heard::Known { duplicate: false },
                    HostState::Removed(_) => {
                        self.connections.remove(host);
                        Heard::Removed
                    }
                };
                self.take_host_state(host, state);
                Ok(heard)
            }
        };
        let queue = self.busy.get_mut(&host);
        let (reply, is_refresh) = queue.map_or((None, false), |queue| (queue.reply.take(), queue.is_refresh));
        self.reply(reply, heard);
        self.release(host);
        if is_refresh {
            self.deciding.go_on();
        }
    }

    /// Goes on with what waited for a host's record.
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

    /// Keeps a host's record for a decision that is being stored; what the host says meanwhile waits.
    pub(super) fn reserve(&mut self, host: HostId) {
        self.busy.entry(host).or_default();
    }

    fn reply(&mut self, reply: Option<Reply>, heard: Result<Heard>) {
        if let Some(reply) = reply {
            self.unpublished.replies.push((reply, heard));
            self.unpublished.is_dirty = true;
        }
    }

    /// Takes a heartbeat that says that a host in flight has arrived, to be stored with the next decisions;
    /// false for all others.
    fn try_defer(&mut self, host: HostId, heartbeat: &Heartbeat, known: &Versioned<Arc<HostRecord>>) -> bool {
        let waiting = self.deferred.get(&host);
        let ours = &heartbeat.report.session;
        let theirs = waiting.map(|deferred| &deferred.heartbeat.report.session);
        if theirs.is_some_and(|theirs| theirs.id != ours.id && theirs.started_at > ours.started_at) {
            // The process that has arrived took the place of this one: what it says changes nothing.
            return true;
        }
        let engine = self.engine.as_ref().filter(|_| self.is_certain());
        let arrives = engine.is_some_and(|engine| {
            has_arrived(engine.plan(), &heartbeat.report)
                && engine.view().facts(host).is_some_and(|facts| {
                    let is_new = !facts.on_version || waiting.is_some();
                    facts.member && facts.started.is_some() && facts.ended.is_none() && is_new
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

    /// Forgets what waits of a host.
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

    /// Tells the engine of those that have arrived, as their records will be.
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

    /// Whether the host has gone to another server, which has stored what it said there.
    fn is_overtaken(&self, host: HostId, known: &Versioned<Arc<HostRecord>>, deferred: &Deferred) -> bool {
        known.value.report != deferred.before.report && self.connections.get(host).is_none()
    }

    /// Stores alone what no decision took along for long.
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

    /// Waits no more for a heartbeat that is stored now.
    pub(super) fn deferred_stored(&mut self, host: HostId, stored: &HostRecord) {
        let is_stored = |deferred: &Deferred| stored.report.as_ref() == Some(&deferred.heartbeat.report);
        if self.deferred.get(&host).is_some_and(is_stored) {
            self.forget_deferred(host);
        }
    }
}
