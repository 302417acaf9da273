use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use refit_types::{Group, GroupRecord, HostId, WeeklyWindow};

use super::clock::Clock;
use super::slot::{Deadlines, Place, Slot};
use crate::moment::{EXPIRES_AFTER, Moment, POLLING_PERIOD};

/// The hosts of one group by where they are, each set in an order that says who is next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Index {
    pub(crate) record: GroupRecord,
    pub(crate) clock: Clock,
    pub(crate) newcomers: BTreeSet<HostId>,
    /// Those that are no members and that nobody hears, by when they were lost.
    pub(crate) absent: BTreeSet<(Moment, HostId)>,
    pub(crate) ready: BTreeSet<HostId>,
    /// By when they were lost.
    pub(crate) away: BTreeSet<(Moment, HostId)>,
    /// By when they must have ended.
    pub(crate) flying: BTreeSet<(Moment, HostId)>,
    /// Those in flight whose agents did not say that they know.
    pub(crate) unacknowledged: BTreeSet<HostId>,
    pub(crate) ended: BTreeSet<HostId>,
    pub(crate) unsuccessful: BTreeSet<HostId>,
    pub(crate) held: u32,
}

/// When a host in flight has timed out, and when it counts as lost.
pub(crate) fn deadlines(slot: &Slot, started: Moment, group: &Group, reachable_since: Moment) -> Deadlines {
    let told = started.plus_seconds(group.jitter_seconds).plus_seconds(group.timeout_seconds);
    let lost = slot.lost_since().map_or(Moment::NEVER, |lost| {
        lost.max(started).max(reachable_since).plus(EXPIRES_AFTER).plus_seconds(group.failure_seconds)
    });
    let timeout = if slot.acknowledged() { told } else { told.plus(POLLING_PERIOD) };
    Deadlines { timeout, lost }
}

impl Index {
    pub(crate) fn new(record: GroupRecord, window: WeeklyWindow) -> Self {
        Self {
            record,
            clock: Clock::new(window),
            newcomers: BTreeSet::new(),
            absent: BTreeSet::new(),
            ready: BTreeSet::new(),
            away: BTreeSet::new(),
            flying: BTreeSet::new(),
            unacknowledged: BTreeSet::new(),
            ended: BTreeSet::new(),
            unsuccessful: BTreeSet::new(),
            held: 0,
        }
    }

    pub(crate) fn put_in(&mut self, host: HostId, slot: &Slot, group: &Group, reachable_since: Moment) {
        match self.place(slot, group, reachable_since) {
            Place::Newcomer => drop(self.newcomers.insert(host)),
            Place::Absent(since) => drop(self.absent.insert((since, host))),
            Place::Ready => drop(self.ready.insert(host)),
            Place::Held => self.held += 1,
            Place::Away(since) => drop(self.away.insert((since, host))),
            Place::Flying(deadline) => {
                self.flying.insert((deadline, host));
                if !slot.acknowledged() {
                    self.unacknowledged.insert(host);
                }
            }
            Place::Ended => drop(self.ended.insert(host)),
            Place::Unsuccessful => drop(self.unsuccessful.insert(host)),
            Place::Settled => {}
        }
    }

    pub(crate) fn take_out(&mut self, host: HostId, slot: &Slot, group: &Group, reachable_since: Moment) {
        match self.place(slot, group, reachable_since) {
            Place::Newcomer => drop(self.newcomers.remove(&host)),
            Place::Absent(since) => drop(self.absent.remove(&(since, host))),
            Place::Ready => drop(self.ready.remove(&host)),
            Place::Held => self.held -= 1,
            Place::Away(since) => drop(self.away.remove(&(since, host))),
            Place::Flying(deadline) => {
                self.flying.remove(&(deadline, host));
                self.unacknowledged.remove(&host);
            }
            Place::Ended => drop(self.ended.remove(&host)),
            Place::Unsuccessful => drop(self.unsuccessful.remove(&host)),
            Place::Settled => {}
        }
    }

    /// Those that become members at that moment: who can be heard, and who was until just now, because a
    /// connection that is down for a moment does not make a host one less.
    pub(crate) fn live(&self, now: Moment) -> impl Iterator<Item = &HostId> {
        let is_live = move |(since, _): &&(Moment, HostId)| since.plus(EXPIRES_AFTER) > now;
        let just_lost = self.absent.iter().rev().take_while(is_live).map(|(_, host)| host);
        self.newcomers.iter().chain(just_lost)
    }

    /// Those who did not make it in an earlier round may start again.
    pub(crate) fn begin_round(
        &mut self,
        hosts: &HashMap<HostId, Slot>,
        group: &Group,
        reachable_since: Moment,
    ) {
        for host in std::mem::take(&mut self.unsuccessful) {
            if let Some(slot) = hosts.get(&host) {
                self.put_in(host, slot, group, reachable_since);
            }
        }
    }

    /// Sets the deadlines of those in flight anew, after what they depend on has changed.
    pub(crate) fn reschedule(
        &mut self,
        hosts: &HashMap<HostId, Slot>,
        group: &Group,
        reachable_since: Moment,
    ) {
        for (_, host) in std::mem::take(&mut self.flying) {
            if let Some(slot) = hosts.get(&host) {
                self.put_in(host, slot, group, reachable_since);
            }
        }
    }

    /// Whether a host of this group is told to go at that moment. What came of it makes no difference.
    pub(crate) fn is_told(&self, slot: &Slot, group: &Group, now: Timestamp) -> bool {
        let Some(started) = slot.started().filter(|_| !self.record.is_halted()) else { return false };
        let in_window = self
            .record
            .window
            .is_some_and(|window| window.contains(now) && started >= Moment::from(window.start));
        let until = started.plus_seconds(group.jitter_seconds).plus_seconds(group.timeout_seconds);
        in_window || (slot.acknowledged() && Moment::from(now) < until)
    }

    fn place(&self, slot: &Slot, group: &Group, reachable_since: Moment) -> Place {
        slot.place(self.record.round, |slot, started| deadlines(slot, started, group, reachable_since))
    }
}
