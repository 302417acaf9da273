//! What should happen next in each group. Decisions only: the caller stores them, each in one transaction.

use jiff::Timestamp;
use refit_types::{Group, GroupRecord, GroupState, Halt, HaltCause, HostId, Revision};

use super::Engine;
use super::group_index::{GroupIndex, count, deadlines};
use super::view::{GroupView, Unreadable};
use crate::micros::{Micros, POLLING_PERIOD};
use crate::{AttemptEnd, HostOutcome, HostTransition};

/// One transaction: the new record of a group, and the transitions of hosts that go with it. It is valid only while
/// all records that it names have the revisions that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Which group.
    pub group: usize,
    /// The record that it was made from.
    pub before: GroupRecord,
    /// Its revision; none if no record is stored.
    pub revision: Option<Revision>,
    /// The record afterwards.
    pub record: GroupRecord,
    /// The transitions of hosts.
    pub transitions: Vec<PlannedTransition>,
    /// The groups whose records must be unchanged, with their revisions.
    pub depends_on: Vec<(usize, Option<Revision>)>,
}

/// The transition of one host, and the revision of the record that it was decided from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedTransition {
    /// Which host.
    pub host: HostId,
    /// Which transition.
    pub transition: HostTransition,
    /// The revision of its record.
    pub revision: Revision,
}

/// What is being written to the store right now; nothing is decided about it until then.
#[derive(Clone, Copy)]
pub struct InProgress<'p> {
    /// Whether a decision about that group is being stored.
    pub group: &'p dyn Fn(usize) -> bool,
    /// Whether that host's record is being written.
    pub host: &'p dyn Fn(HostId) -> bool,
}

impl InProgress<'_> {
    /// Nothing is being stored.
    pub const NOTHING: InProgress<'static> = InProgress { group: &|_| false, host: &|_| false };
}

impl Engine {
    /// The decisions that are due: at most one for each group, of at most `batch` hosts. After they are stored and
    /// applied to the engine, there may be more.
    pub fn decide(&mut self, now: Timestamp, batch: usize, in_progress: InProgress<'_>) -> Vec<Decision> {
        self.view.policy.refresh(now);
        for view in &mut self.view.groups {
            view.windows.refresh(now);
        }
        let free = (0..self.indexes.len()).filter(|group| !(in_progress.group)(*group));
        free.filter_map(|group| self.decide_group(group, now, batch, in_progress.host)).collect()
    }

    /// When to decide again, if no event comes before.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let mut next = Micros::NEVER;
        let mut consider = |at: Option<Micros>| next = at.into_iter().fold(next, Micros::min);
        let ahead = |at: Timestamp| Some(Micros::from(at)).filter(|_| at > now);
        for (index, view) in self.indexes.iter().zip(&self.view.groups) {
            consider(index.flying.first().map(|(deadline, _)| *deadline));
            consider(view.record.window.map(|window| window.end.into()));
            consider(view.windows.open(now).map(|open| open.end.into()));
            consider(view.windows.next_opening(now).map(Micros::from));
            consider(view.record.window.and_then(|window| ahead(window.start)));
            consider(view.record.closed.and_then(ahead));
            consider(view.record.run.and_then(|run| ahead(run.start).or(ahead(run.end))));
            consider(
                index.away.last().map(|(since, _)| since.plus(POLLING_PERIOD)).filter(|at| *at > now.into()),
            );
        }
        next.timestamp()
    }

    fn decide_group(
        &self,
        group: usize,
        now: Timestamp,
        batch: usize,
        is_busy: &dyn Fn(HostId) -> bool,
    ) -> Option<Decision> {
        let (index, view) = (self.indexes.get(group)?, self.view.groups.get(group)?);
        let plan = &self.view.plan;
        let limits = plan.groups.get(group)?;
        if matches!(view.unreadable, Some(Unreadable::Group { .. })) {
            return None;
        }
        let enabled = plan.policy.enabled;
        let mut draft = Draft {
            record: view.record.clone(),
            transitions: Vec::new(),
            left: batch,
            now,
            enabled,
            is_busy,
            // An unreadable host may be in flight, or may never have started.
            knows_all: view.unreadable.is_none() && self.view.unreadable.is_none(),
            // Every host change that other servers made before these records were written is known.
            is_caught_up: self.applied >= view.revision.unwrap_or_default().max(plan.revision),
        };
        let may_go = enabled && draft.knows_all && self.view.missing(group).next().is_none();
        let may_start = may_go && plan.paused.is_none() && view.record.paused.is_none();

        self.end(&mut draft, index, limits);
        draft.halt(limits);
        draft.close(view);
        self.revoke(&mut draft, index, limits);
        let opened = may_start && draft.open(index, view);
        self.admit(&mut draft, index);
        let started = may_start && draft.start(self, index, limits);
        draft.succeed(index, limits);

        let Draft { record, transitions, .. } = draft;
        let required = |group: &usize| (*group, self.view.groups.get(*group).and_then(|view| view.revision));
        let depends_on = match opened || started {
            true => plan.requires(group).iter().map(required).collect(),
            false => Vec::new(),
        };
        (record != view.record || !transitions.is_empty()).then(|| Decision {
            group,
            before: view.record.clone(),
            revision: view.revision,
            record,
            transitions,
            depends_on,
        })
    }

    /// Finishes hosts whose result is known or whose deadline has passed; while updates are switched off, deadlines
    /// do not count.
    fn end(&self, draft: &mut Draft, index: &GroupIndex, limits: &Group) {
        let (is_busy, left) = (draft.is_busy, draft.left);
        draft.knows_all &= !index.ended.iter().any(|host| is_busy(*host));
        for host in index.ended.iter().filter(|host| !is_busy(**host)).take(left) {
            let Some(packed) = self.view.hosts.get(*host) else { continue };
            if packed.is_flying() {
                less_one(&mut draft.record.in_flight);
            }
            let transition = match packed.ended() {
                _ if !packed.on_version() && packed.undone() => {
                    draft.record.failed += 1;
                    HostTransition::Finish(AttemptEnd::Undone)
                }
                _ if !packed.on_version() => HostTransition::Revoke,
                was => {
                    match was {
                        Some(HostOutcome::Failed { round }) if round == draft.record.round => {
                            less_one(&mut draft.record.failed)
                        }
                        Some(HostOutcome::TimedOut { round }) if round == draft.record.round => {
                            less_one(&mut draft.record.timed_out);
                        }
                        _ => {}
                    }
                    draft.record.upgraded += 1;
                    HostTransition::Finish(AttemptEnd::Upgraded)
                }
            };
            draft.add(*host, transition, packed.revision);
        }
        if !draft.enabled {
            return;
        }
        let now = Micros::from(draft.now);
        let left = draft.left;
        let overdue = index.flying.iter().take_while(|(deadline, _)| *deadline <= now);
        for (_, host) in overdue.filter(|(_, host)| !is_busy(*host)).take(left) {
            let Some(packed) = self.view.hosts.get(*host) else { continue };
            let Some(started) = packed.started() else { continue };
            less_one(&mut draft.record.in_flight);
            let is_lost = deadlines(packed, started, limits, self.reachable_since).lost <= now;
            let end = if is_lost { AttemptEnd::Lost } else { AttemptEnd::TimedOut };
            *(if is_lost { &mut draft.record.failed } else { &mut draft.record.timed_out }) += 1;
            draft.add(*host, HostTransition::Finish(end), packed.revision);
        }
    }

    /// Revokes the starts that were not acknowledged before the window closed, and all starts while updates are switched
    /// off. Revoked starts are not counted.
    fn revoke(&self, draft: &mut Draft, index: &GroupIndex, limits: &Group) {
        if draft.record.window.is_some() {
            return;
        }
        let now = Micros::from(draft.now);
        let is_vain = |host: &HostId| match self.view.hosts.get(*host) {
            // Hosts past their deadline are finished instead.
            Some(packed) if draft.enabled => packed.started().is_some_and(|started| {
                deadlines(packed, started, limits, self.reachable_since).first() > now
            }),
            known => known.is_some(),
        };
        let is_free = |host: &HostId| !(draft.is_busy)(*host) && is_vain(host);
        let revoked: Vec<HostId> = match draft.enabled {
            true => index.unacknowledged.iter().copied().filter(is_free).take(draft.left).collect(),
            false => index.flying.iter().map(|(_, host)| *host).filter(is_free).take(draft.left).collect(),
        };
        for host in revoked {
            let Some(packed) = self.view.hosts.get(host) else { continue };
            less_one(&mut draft.record.in_flight);
            draft.add(host, HostTransition::Revoke, packed.revision);
        }
    }

    /// Adds the connected hosts as members; once all are members, hosts may start.
    fn admit(&self, draft: &mut Draft, index: &GroupIndex) {
        if !draft.record.admitting {
            return;
        }
        let (is_busy, left) = (draft.is_busy, draft.left);
        let mut live = index.live(draft.now.into()).filter(|host| !is_busy(**host));
        for host in live.by_ref().take(left) {
            let Some(packed) = self.view.hosts.get(*host) else { continue };
            let has_it = packed.on_version();
            draft.record.members += 1;
            draft.record.upgraded += u32::from(has_it);
            draft.add(
                *host,
                if has_it { HostTransition::AdmitUpgraded } else { HostTransition::Admit },
                packed.revision,
            );
        }
        let all_admitted = live.next().is_none() && !index.live(draft.now.into()).any(|host| is_busy(*host));
        if all_admitted && draft.is_caught_up && draft.knows_all {
            draft.record.admitting = false;
            draft.record.sealed = true;
        }
    }
}

/// A decision under construction.
struct Draft<'d> {
    record: GroupRecord,
    transitions: Vec<PlannedTransition>,
    /// How many more transitions fit into the batch.
    left: usize,
    now: Timestamp,
    enabled: bool,
    is_busy: &'d dyn Fn(HostId) -> bool,
    /// Whether the records of all hosts of the group can be read, and none is being written.
    knows_all: bool,
    /// Whether every host of the store is known.
    is_caught_up: bool,
}

impl Draft<'_> {
    fn add(&mut self, host: HostId, transition: HostTransition, revision: Revision) {
        self.transitions.push(PlannedTransition { host, transition, revision });
        self.left = self.left.saturating_sub(1);
    }

    fn enter(&mut self, state: GroupState) {
        self.record.state = state;
        self.record.since = self.now;
    }

    /// Halts when too many hosts failed or timed out. Unacknowledged starts are then revoked.
    fn halt(&mut self, limits: &Group) {
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
    fn close(&mut self, view: &GroupView) {
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
    fn open(&mut self, index: &GroupIndex, view: &GroupView) -> bool {
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

    /// Starts as many hosts as the limit allows, in the order of UUIDs.
    fn start(&mut self, engine: &Engine, index: &GroupIndex, limits: &Group) -> bool {
        let is_open = self.record.window.is_some_and(|window| window.contains(self.now));
        if !is_open || self.record.admitting || self.record.is_halted() {
            return false;
        }
        let limit = limits.max_in_flight.slots(self.record.members);
        let free = limit.saturating_sub(self.record.in_flight) as usize;
        let before = self.transitions.len();
        let is_busy = self.is_busy;
        for host in index.ready.iter().filter(|host| !is_busy(**host)).take(free.min(self.left)) {
            let Some(packed) = engine.view.hosts.get(*host) else { continue };
            self.record.in_flight += 1;
            self.add(*host, HostTransition::Start, packed.revision);
        }
        self.transitions.len() > before
    }

    /// Succeeds when all unfinished members are held, or have been away for long and are few.
    fn succeed(&mut self, index: &GroupIndex, limits: &Group) {
        let record = &self.record;
        let is_open_question = matches!(record.state, GroupState::Active | GroupState::Scheduled);
        if !is_open_question || !record.sealed || record.admitting || !self.transitions.is_empty() {
            return;
        }
        if !self.is_caught_up || !self.knows_all {
            return;
        }
        let away = count(index.away.len());
        let ended = record.removed + record.upgraded + record.failed + record.timed_out;
        if record.in_flight > 0 || record.members.saturating_sub(ended) != index.held + away {
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
fn less_one(count: &mut u32) {
    *count = count.saturating_sub(1);
}
