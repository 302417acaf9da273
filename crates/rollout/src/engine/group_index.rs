//! The hosts of one group by the phase of their upgrade. Kept by the engine, so that one event costs the same in
//! any fleet.

use std::collections::{BTreeMap, BTreeSet};

use refit_types::{Group, HostId};

use super::packed_host::{Deadlines, HostPhase, PackedHost};
use super::view::Progress;
use crate::HostMap;
use crate::micros::{EXPIRES_AFTER, Micros, POLLING_PERIOD, SETTLES_WITHIN};

/// One set for each phase, ordered by who is next.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct GroupIndex {
    pub(crate) newcomers: BTreeSet<HostId>,
    /// Newcomers that could start before they become members.
    pub(crate) guests: BTreeSet<HostId>,
    /// Newcomers that have a slot.
    pub(crate) guests_flying: BTreeSet<HostId>,
    /// Hosts without a slot that were told in an earlier epoch and have not settled, by when they lose their claim.
    pub(crate) unsettled: BTreeSet<(Micros, HostId)>,
    /// Disconnected non-members, by time of disconnect.
    pub(crate) absent: BTreeSet<(Micros, HostId)>,
    pub(crate) ready: BTreeSet<HostId>,
    /// By time of disconnect.
    pub(crate) away: BTreeSet<(Micros, HostId)>,
    /// By deadline.
    pub(crate) flying: BTreeSet<(Micros, HostId)>,
    /// Hosts with a slot that were told in an earlier epoch, by when they lose it.
    pub(crate) carried: BTreeSet<(Micros, HostId)>,
    /// Those in flight whose agents did not acknowledge the start.
    pub(crate) unacknowledged: BTreeSet<HostId>,
    /// Those in flight since before hosts were last stopped, by a pause or the off switch.
    pub(crate) suspended: BTreeSet<HostId>,
    pub(crate) ended: BTreeSet<HostId>,
    pub(crate) unsuccessful: BTreeSet<HostId>,
    pub(crate) held: u32,
    /// Hosts whose records cannot be read, with the keys of the records.
    pub(crate) unreadable: BTreeMap<HostId, Box<str>>,
}

/// What determines a host's phase besides its own facts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'t> {
    pub(crate) group: &'t Group,
    /// The round that the group's record is in.
    pub(crate) round: u32,
    /// Since when the store has been reachable.
    pub(crate) reachable_since: Micros,
    /// When the epoch began.
    pub(crate) began_at: Micros,
}

/// When a host in flight times out, and when it counts as lost. After an outage of the store, hosts first get the time
/// to reconnect and report.
pub(crate) fn deadlines(
    host: &PackedHost,
    started: Micros,
    group: &Group,
    reachable_since: Micros,
) -> Deadlines {
    let told = started.plus_seconds(group.jitter_seconds).plus_seconds(group.timeout_seconds);
    let lost = host.lost_since().map_or(Micros::NEVER, |lost| {
        lost.max(started).max(reachable_since).plus(EXPIRES_AFTER).plus_seconds(group.failure_seconds)
    });
    let timeout = if host.acknowledged() { told } else { told.plus(POLLING_PERIOD) };
    Deadlines { timeout: timeout.max(reachable_since.plus(EXPIRES_AFTER)), lost }
}

impl Terms<'_> {
    fn phase(&self, host: &PackedHost) -> HostPhase {
        host.phase(
            self.round,
            |host, started| deadlines(host, started, self.group, self.reachable_since),
            |host, started| self.settles_by(host, started),
        )
    }

    /// Until when a host that was told in an earlier epoch may still be under way: its deadline, by the terms of its
    /// present group, and not for long in this epoch.
    pub(crate) fn settles_by(&self, host: &PackedHost, started: Micros) -> Micros {
        let told = started.plus_seconds(self.group.jitter_seconds).plus_seconds(self.group.timeout_seconds);
        let deadline = if host.acknowledged() { told } else { told.plus(POLLING_PERIOD) };
        deadline.min(self.began_at.plus(SETTLES_WITHIN))
    }

    /// Whether a host without a slot may still be under way at that moment.
    pub(crate) fn is_unsettled(&self, host: &PackedHost, now: Micros) -> bool {
        self.unsettled(host).is_some_and(|until| until > now)
    }

    /// The place of a host in `unsettled`, if it has one.
    fn unsettled(&self, host: &PackedHost) -> Option<Micros> {
        let started = host.started().filter(|_| host.is_unsettled() && !host.is_unreadable())?;
        Some(self.settles_by(host, started))
    }
}

impl GroupIndex {
    pub(crate) fn insert(&mut self, id: HostId, host: &PackedHost, terms: Terms<'_>) {
        if let Some(until) = terms.unsettled(host) {
            self.unsettled.insert((until, id));
        }
        if host.is_newcomer() && host.is_flying() && !host.is_unreadable() {
            self.guests_flying.insert(id);
        }
        match terms.phase(host) {
            HostPhase::Newcomer { could_start } => {
                self.newcomers.insert(id);
                if could_start {
                    self.guests.insert(id);
                }
            }
            HostPhase::Absent(since) => drop(self.absent.insert((since, id))),
            HostPhase::Ready => drop(self.ready.insert(id)),
            HostPhase::Held => self.held += 1,
            HostPhase::Away(since) => drop(self.away.insert((since, id))),
            HostPhase::Flying(deadline) => {
                self.flying.insert((deadline, id));
                if !host.acknowledged() {
                    self.unacknowledged.insert(id);
                }
                if host.suspended() {
                    self.suspended.insert(id);
                }
            }
            HostPhase::Carried(until) => drop(self.carried.insert((until, id))),
            HostPhase::Ended => drop(self.ended.insert(id)),
            HostPhase::Unsuccessful => drop(self.unsuccessful.insert(id)),
            HostPhase::Settled | HostPhase::Unreadable => {}
        }
    }

    pub(crate) fn remove(&mut self, id: HostId, host: &PackedHost, terms: Terms<'_>) {
        if let Some(until) = terms.unsettled(host) {
            self.unsettled.remove(&(until, id));
        }
        if host.is_newcomer() {
            self.guests_flying.remove(&id);
        }
        match terms.phase(host) {
            HostPhase::Newcomer { .. } => {
                self.newcomers.remove(&id);
                self.guests.remove(&id);
            }
            HostPhase::Absent(since) => drop(self.absent.remove(&(since, id))),
            HostPhase::Ready => drop(self.ready.remove(&id)),
            HostPhase::Held => self.held -= 1,
            HostPhase::Away(since) => drop(self.away.remove(&(since, id))),
            HostPhase::Flying(deadline) => {
                self.flying.remove(&(deadline, id));
                self.unacknowledged.remove(&id);
                self.suspended.remove(&id);
            }
            HostPhase::Carried(until) => drop(self.carried.remove(&(until, id))),
            HostPhase::Ended => drop(self.ended.remove(&id)),
            HostPhase::Unsuccessful => drop(self.unsuccessful.remove(&id)),
            HostPhase::Unreadable => drop(self.unreadable.remove(&id)),
            HostPhase::Settled => {}
        }
    }

    /// The hosts that become members at that moment: those that are connected, and those that were until just now, so
    /// that a brief disconnect does not leave a host out.
    pub(crate) fn live(&self, now: Micros) -> impl Iterator<Item = &HostId> {
        let is_live = move |(since, _): &&(Micros, HostId)| since.plus(EXPIRES_AFTER) > now;
        let just_lost = self.absent.iter().rev().take_while(is_live).map(|(_, host)| host);
        self.newcomers.iter().chain(just_lost)
    }

    /// Lets hosts that failed or timed out in an earlier round start again.
    pub(crate) fn begin_round(&mut self, hosts: &HostMap<PackedHost>, terms: Terms<'_>) {
        for id in std::mem::take(&mut self.unsuccessful) {
            if let Some(host) = hosts.get(id) {
                self.insert(id, host, terms);
            }
        }
    }

    /// Recomputes the deadlines of hosts in flight after a change of limits or reachability.
    pub(crate) fn reschedule(&mut self, hosts: &HostMap<PackedHost>, terms: Terms<'_>) {
        let flying = std::mem::take(&mut self.flying).into_iter();
        let carried = std::mem::take(&mut self.carried).into_iter();
        let unsettled = std::mem::take(&mut self.unsettled).into_iter();
        for (_, id) in flying.chain(carried).chain(unsettled) {
            if let Some(host) = hosts.get(id) {
                self.insert(id, host, terms);
            }
        }
    }

    /// The hosts that were told in an earlier epoch, have no slot yet, and may still be under way at that moment.
    pub(crate) fn unsettled_at(&self, now: Micros) -> impl Iterator<Item = HostId> {
        self.unsettled.iter().rev().take_while(move |(until, _)| *until > now).map(|(_, host)| *host)
    }

    /// The counts of the group beyond those in its record.
    pub(crate) fn progress(&self, limit: u32) -> Progress {
        Progress {
            limit,
            held: self.held,
            away: count(self.away.len()),
            ready: count(self.ready.len()),
            newcomers: count(self.newcomers.len()),
            unsettled: count(self.unsettled.len()),
        }
    }
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
