//! A decision about one group while it is being made: its record, and how each rule changes it.

use jiff::Timestamp;
use refit_types::{Group, GroupRecord, GroupState, Halt, HaltCause, HostId};

use super::decide::PlannedTransition;
use super::group_index::{GroupIndex, Terms, count};
use super::view::GroupView;
use super::{Engine, PackedHost};
use crate::HostTransition;
use crate::micros::{Micros, POLLING_PERIOD};

/// A decision under construction.
pub(super) struct Draft<'d> {
    pub(super) record: GroupRecord,
    pub(super) transitions: Vec<PlannedTransition>,
    /// Whether one of them is of a member.
    pub(super) changes_members: bool,
    /// Whether newcomers become members in it.
    pub(super) admits: bool,
    /// How many more transitions fit into the batch.
    pub(super) left: usize,
    pub(super) terms: Terms<'d>,
    pub(super) now: Timestamp,
    pub(super) enabled: bool,
    /// Whether no host may be told to upgrade: updates are switched off, or the rollout or this group is paused.
    pub(super) stopped: bool,
    pub(super) is_busy: &'d dyn Fn(HostId) -> bool,
    /// Whether the records of all hosts of the group can be read, and none is being written.
    pub(super) knows_all: bool,
    /// Whether every host of the store is known.
    pub(super) is_caught_up: bool,
}

impl Draft<'_> {
    pub(super) fn add(&mut self, host: HostId, transition: HostTransition, packed: &PackedHost) {
        self.transitions.push(PlannedTransition { host, transition, revision: packed.revision });
        self.changes_members |= packed.is_member();
        self.left = self.left.saturating_sub(1);
    }

    pub(super) fn has(&self, host: HostId) -> bool {
        self.transitions.iter().any(|planned| planned.host == host)
    }

    /// Takes the slot back that a host has, if it has one.
    pub(super) fn release(&mut self, packed: &PackedHost) {
        if !packed.is_flying() {
            return;
        }
        less_one(&mut self.record.in_flight);
        if packed.is_newcomer() {
            let guests = self.record.newcomers_in_flight();
            self.record.set_newcomers_in_flight(guests.saturating_sub(1));
        }
    }

    fn enter(&mut self, state: GroupState) {
        self.record.state = state;
        self.record.since = self.now;
    }

    /// Halts when too many hosts failed or timed out. Unacknowledged starts are then revoked.
    pub(super) fn halt(&mut self, limits: &Group) {
        if self.record.is_halted() {
            return;
        }
        let members = self.record.members;
        let causes = [
            (HaltCause::Failed, self.record.failed, limits.max_failed_before_halt),
            (HaltCause::TimedOut, self.record.timed_out, limits.max_timeout_before_halt),
        ];
        let exceeded = causes.into_iter().find(|(_, count, limit)| limit.is_exceeded_by(*count, members));
        if let Some((cause, count, limit)) = exceeded {
            self.enter(GroupState::Halted(Halt { cause, count, members, limit }));
            self.record.window = None;
            self.record.run = None;
            self.record.admitting = false;
        }
    }

    /// Closes a window that is over, or moves its end if the hours were changed. A window in the future was opened by a
    /// server with a fast clock and is left alone. A window that has ended, or was followed by another, is not opened
    /// again by a server with a slow clock. A `run` that was not used in time is dropped for the same reason.
    pub(super) fn close(&mut self, view: &GroupView) {
        if self.record.run.is_some_and(|run| run.end <= self.now) {
            self.record.run = None;
        }
        let Some(window) = self.record.window else { return };
        if self.enabled && window.start > self.now {
            return;
        }
        let due = self.due_window(view);
        match due {
            Some(due) if due.start == window.start => self.record.window = Some(due),
            _ => {
                let followed = due.map(|due| due.start).filter(|start| *start > window.start);
                let ended = if window.end <= self.now { Some(window.end) } else { followed };
                self.record.closed = self.record.closed.max(ended);
                self.record.window = None;
                self.record.admitting = false;
                if self.record.state == GroupState::Active {
                    self.enter(GroupState::Scheduled);
                }
            }
        }
    }

    /// Opens the window that is due, once the leftover starts of the last one are revoked.
    pub(super) fn open(&mut self, index: &GroupIndex, view: &GroupView) -> bool {
        let is_over = self.record.state == GroupState::Succeeded
            && index.newcomers.is_empty()
            && index.ready.is_empty();
        let is_clear = index.unacknowledged.is_empty()
            && self.record.window.is_none()
            && self.record.closed.is_none_or(|closed| closed <= self.now);
        let Some(window) = self.due_window(view) else { return false };
        if self.record.is_halted() || is_over || !is_clear || !self.is_caught_up {
            return false;
        }
        self.record.window = Some(window);
        self.record.admitting = true;
        if self.record.state == GroupState::Scheduled {
            self.enter(GroupState::Active);
        }
        true
    }

    /// Lets newcomers become members at once, and not with the next window, while no member could be upgraded: the group
    /// goes on when one arrives.
    pub(super) fn admit_again(&mut self, index: &GroupIndex) {
        let record = &self.record;
        let is_open = record.window.is_some_and(|window| window.contains(self.now));
        let is_unfinished = matches!(record.state, GroupState::Active | GroupState::Scheduled);
        let is_stuck = record.upgraded == 0
            && record.members_in_flight() == 0
            && index.ready.is_empty()
            && index.ended.is_empty();
        self.record.admitting |=
            record.sealed && is_open && is_unfinished && is_stuck && !index.newcomers.is_empty();
    }

    /// Starts as many hosts as the limit allows: members first, then newcomers, in the order of UUIDs. Newcomers that
    /// may still be under way to an earlier version take slots before that.
    pub(super) fn start(&mut self, engine: &Engine, index: &GroupIndex, limits: &Group) -> bool {
        let is_open = self.record.window.is_some_and(|window| window.contains(self.now));
        if !is_open || self.record.admitting || self.admits || self.record.is_halted() {
            return false;
        }
        let (before, is_busy, now) = (self.transitions.len(), self.is_busy, Micros::from(self.now));
        let mut uncounted = 0;
        for host in index.unsettled_at(now) {
            match engine.view.hosts.get(host).filter(|_| self.left > 0 && !is_busy(host)) {
                Some(packed) => self.take_slot(host, HostTransition::CarryNewcomer, packed),
                None => uncounted += 1,
            }
        }
        let limit = limits.max_in_flight.slots(self.record.members);
        let mut free = limit.saturating_sub(self.record.in_flight).saturating_sub(uncounted) as usize;
        let members = index.ready.iter().map(|host| (host, HostTransition::Start));
        let terms = self.terms;
        let is_settled = |host: &HostId| {
            engine.view.hosts.get(*host).is_some_and(|packed| !terms.is_unsettled(packed, now))
        };
        let guests = index
            .guests
            .iter()
            .filter(|host| is_settled(host))
            .map(|host| (host, HostTransition::StartNewcomer));
        for (host, transition) in members.chain(guests).filter(|(host, _)| !is_busy(**host)) {
            if free == 0 || self.left == 0 {
                break;
            }
            let Some(packed) = engine.view.hosts.get(*host) else { continue };
            self.take_slot(*host, transition, packed);
            free -= 1;
        }
        self.transitions.len() > before
    }

    fn take_slot(&mut self, host: HostId, transition: HostTransition, packed: &PackedHost) {
        self.record.in_flight += 1;
        if !packed.is_member() {
            let guests = self.record.newcomers_in_flight();
            self.record.set_newcomers_in_flight(guests + 1);
        }
        self.add(host, transition, packed);
    }

    /// Succeeds when all unfinished members are held, or have been away for long and are few, and one runs the version.
    /// Newcomers do not matter.
    pub(super) fn succeed(&mut self, index: &GroupIndex, limits: &Group) {
        let record = &self.record;
        let is_open_question = matches!(record.state, GroupState::Active | GroupState::Scheduled);
        if !is_open_question || !record.sealed || record.admitting || self.changes_members {
            return;
        }
        if !self.is_caught_up || !self.knows_all || record.upgraded == 0 && !limits.allow_empty {
            return;
        }
        let away = count(index.away.len());
        let ended = record.removed + record.upgraded + record.failed + record.timed_out;
        if record.members_in_flight() > 0 || record.members.saturating_sub(ended) != index.held + away {
            return;
        }
        let latest = index.away.last().map(|(since, _)| since.plus(POLLING_PERIOD));
        let may_be_left = latest.is_none_or(|until| until <= self.now.into())
            && !limits.max_timeout_before_halt.is_exceeded_by(away, record.members);
        if may_be_left {
            self.enter(GroupState::Succeeded);
        }
    }

    fn due_window(&self, view: &GroupView) -> Option<refit_types::Span> {
        let by_hand = self.record.run.filter(|run| run.contains(self.now));
        by_hand.or_else(|| view.windows.open(self.now)).filter(|_| self.enabled)
    }
}

/// Saturates: the engine's state may be stale, and a decision from stale state is refused by the store.
pub(super) fn less_one(count: &mut u32) {
    *count = count.saturating_sub(1);
}
