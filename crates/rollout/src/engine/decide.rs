use jiff::Timestamp;
use refit_types::{Group, GroupRecord, GroupState, Halt, HaltCause, HostId};

use super::index::{Index, deadlines};
use super::{Engine, count};
use crate::moment::{Moment, POLLING_PERIOD};
use crate::{End, Ended, Mark};

/// One transaction: the group's record as it should be, and the marks of hosts that go with it. It holds only
/// if neither the record, nor the hosts, nor those records that it depends on have changed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Which group.
    pub group: usize,
    /// The record that it was made from.
    pub before: GroupRecord,
    /// The record afterwards.
    pub record: GroupRecord,
    /// What happens to which hosts.
    pub marks: Vec<(HostId, Mark)>,
    /// The groups whose records must be as the engine knows them.
    pub depends_on: Vec<usize>,
}

impl Engine {
    /// What should happen now: at most one decision for each group, of at most `batch` hosts. Once they are
    /// stored and the engine knows, there may be more.
    pub fn decide(&mut self, now: Timestamp, batch: usize) -> Vec<Decision> {
        self.policy.set(now);
        for index in &mut self.groups {
            index.clock.set(now);
        }
        (0..self.groups.len()).filter_map(|group| self.decide_group(group, now, batch)).collect()
    }

    /// When to ask again, if nothing is heard until then.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let mut next = Moment::NEVER;
        let mut consider = |at: Option<Moment>| next = at.into_iter().fold(next, Moment::min);
        let ahead = |at: Timestamp| Some(Moment::from(at)).filter(|_| at > now);
        for index in &self.groups {
            consider(index.flying.first().map(|(deadline, _)| *deadline));
            consider(index.record.window.map(|window| window.end.into()));
            consider(index.clock.open(now).map(|open| open.end.into()));
            consider(index.clock.next_opening(now).map(Moment::from));
            consider(index.record.window.and_then(|window| ahead(window.start)));
            consider(index.record.closed.and_then(ahead));
            consider(index.record.run.and_then(|run| ahead(run.start).or(ahead(run.end))));
            consider(
                index.away.last().map(|(since, _)| since.plus(POLLING_PERIOD)).filter(|at| *at > now.into()),
            );
        }
        next.timestamp()
    }

    fn decide_group(&self, group: usize, now: Timestamp, batch: usize) -> Option<Decision> {
        let (index, limits) = (self.groups.get(group)?, self.plan.groups.get(group)?);
        let enabled = self.plan.policy.enabled;
        let mut draft = Draft { record: index.record.clone(), marks: Vec::new(), left: batch, now, enabled };
        let may_go = enabled && self.missing(group).next().is_none();
        let may_start = may_go && self.plan.paused.is_none() && index.record.paused.is_none();

        self.end(&mut draft, index, limits);
        draft.halt(limits);
        draft.close(index);
        self.take_back(&mut draft, index, limits);
        let opened = may_start && draft.open(index);
        self.admit(&mut draft, index);
        let started = may_start && draft.start(index, limits);
        draft.succeed(index, limits);

        let Draft { record, marks, .. } = draft;
        let depends_on = if opened || started { self.plan.requires(group).to_vec() } else { Vec::new() };
        (record != index.record || !marks.is_empty()).then(|| Decision {
            group,
            before: index.record.clone(),
            record,
            marks,
            depends_on,
        })
    }

    /// Counts those whose end is known, or whose time is up: that of hosts that are told to stop is not.
    fn end(&self, draft: &mut Draft, index: &Index, limits: &Group) {
        for host in index.ended.iter().take(draft.left) {
            let Some(slot) = self.hosts.get(host) else { continue };
            if slot.is_flying() {
                less_one(&mut draft.record.in_flight);
            }
            let mark = match slot.ended() {
                _ if !slot.on_version() && slot.undone() => {
                    draft.record.failed += 1;
                    Mark::Finish(End::Undone)
                }
                _ if !slot.on_version() => Mark::TakeBack,
                was => {
                    match was {
                        Some(Ended::Failed { round }) if round == draft.record.round => {
                            less_one(&mut draft.record.failed)
                        }
                        Some(Ended::TimedOut { round }) if round == draft.record.round => {
                            less_one(&mut draft.record.timed_out);
                        }
                        _ => {}
                    }
                    draft.record.upgraded += 1;
                    Mark::Finish(End::Upgraded)
                }
            };
            draft.mark(*host, mark);
        }
        if !draft.enabled {
            return;
        }
        let now = Moment::from(draft.now);
        for (_, host) in index.flying.iter().take_while(|(deadline, _)| *deadline <= now).take(draft.left) {
            let Some(slot) = self.hosts.get(host) else { continue };
            let Some(started) = slot.started() else { continue };
            less_one(&mut draft.record.in_flight);
            let is_lost = deadlines(slot, started, limits, self.reachable_since).lost <= now;
            let end = if is_lost { End::Lost } else { End::TimedOut };
            *(if is_lost { &mut draft.record.failed } else { &mut draft.record.timed_out }) += 1;
            draft.mark(*host, Mark::Finish(end));
        }
    }

    /// Takes back what nobody acknowledged before the window closed, and everything while updates are switched
    /// off, uncounted.
    fn take_back(&self, draft: &mut Draft, index: &Index, limits: &Group) {
        if draft.record.window.is_some() {
            return;
        }
        if !draft.enabled {
            for (_, host) in index.flying.iter().take(draft.left) {
                less_one(&mut draft.record.in_flight);
                draft.mark(*host, Mark::TakeBack);
            }
            return;
        }
        let now = Moment::from(draft.now);
        for host in &index.unacknowledged {
            if draft.left == 0 {
                return;
            }
            let Some((slot, started)) = self.hosts.get(host).and_then(|slot| Some((slot, slot.started()?)))
            else {
                continue;
            };
            if deadlines(slot, started, limits, self.reachable_since).first() > now {
                less_one(&mut draft.record.in_flight);
                draft.mark(*host, Mark::TakeBack);
            }
        }
    }

    /// Marks those that are live as members; once all are, they may start.
    fn admit(&self, draft: &mut Draft, index: &Index) {
        if !draft.record.admitting {
            return;
        }
        let mut live = index.live(draft.now.into());
        for host in live.by_ref().take(draft.left) {
            let has_it = self.hosts.get(host).is_some_and(|slot| slot.on_version());
            draft.record.members += 1;
            draft.record.upgraded += u32::from(has_it);
            draft.mark(*host, if has_it { Mark::AdmitUpgraded } else { Mark::Admit });
        }
        if live.next().is_none() {
            draft.record.admitting = false;
            draft.record.sealed = true;
        }
    }
}

/// A decision in the making.
struct Draft {
    record: GroupRecord,
    marks: Vec<(HostId, Mark)>,
    /// How many more hosts may be marked.
    left: usize,
    now: Timestamp,
    enabled: bool,
}

impl Draft {
    fn mark(&mut self, host: HostId, mark: Mark) {
        self.marks.push((host, mark));
        self.left = self.left.saturating_sub(1);
    }

    fn enter(&mut self, state: GroupState) {
        self.record.state = state;
        self.record.since = self.now;
    }

    /// Halts when too many did not make it. What nobody has acknowledged is then taken back.
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

    /// Closes a window that is over, or moves its end if the hours were changed. One that lies ahead was
    /// opened by a server whose clock is, too; and one that has come to its end, or that another follows, is
    /// not opened again by a server whose clock is behind. A `run` that nobody took up in time is over
    /// too: a server that is behind would go back to it.
    fn close(&mut self, index: &Index) {
        if self.record.run.is_some_and(|run| run.end <= self.now) {
            self.record.run = None;
        }
        let Some(window) = self.record.window else { return };
        if self.enabled && window.start > self.now {
            return;
        }
        let due = self.due_window(index);
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

    /// Opens the window that is due, once what was left of the one before is taken back.
    fn open(&mut self, index: &Index) -> bool {
        let is_over = self.record.state == GroupState::Succeeded
            && index.newcomers.is_empty()
            && index.ready.is_empty();
        let is_clear = index.unacknowledged.is_empty()
            && self.record.window.is_none()
            && self.record.closed.is_none_or(|closed| closed <= self.now);
        let Some(window) = self.due_window(index) else { return false };
        if self.record.is_halted() || is_over || !is_clear {
            return false;
        }
        self.record.window = Some(window);
        self.record.admitting = true;
        if self.record.state == GroupState::Scheduled {
            self.enter(GroupState::Active);
        }
        true
    }

    /// Starts as many as the limit leaves room for, by UUID.
    fn start(&mut self, index: &Index, limits: &Group) -> bool {
        let is_open = self.record.window.is_some_and(|window| window.contains(self.now));
        if !is_open || self.record.admitting || self.record.is_halted() {
            return false;
        }
        let limit = limits.max_in_flight.ceil_of(self.record.members);
        let free = limit.saturating_sub(self.record.in_flight) as usize;
        let before = self.marks.len();
        for host in index.ready.iter().take(free.min(self.left)) {
            self.record.in_flight += 1;
            self.mark(*host, Mark::Start);
        }
        self.marks.len() > before
    }

    /// Succeeds when only those are unfinished that are held, or away for long and few.
    fn succeed(&mut self, index: &Index, limits: &Group) {
        let record = &self.record;
        let is_open_question = matches!(record.state, GroupState::Active | GroupState::Scheduled);
        if !is_open_question || !record.sealed || record.admitting || !self.marks.is_empty() {
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

    fn due_window(&self, index: &Index) -> Option<refit_types::Span> {
        let by_hand = self.record.run.filter(|run| run.contains(self.now));
        by_hand.or_else(|| index.clock.open(self.now)).filter(|_| self.enabled)
    }
}

/// What is stored is exact; what is known of it may be behind, and is then refused when it is stored.
fn less_one(count: &mut u32) {
    *count = count.saturating_sub(1);
}
