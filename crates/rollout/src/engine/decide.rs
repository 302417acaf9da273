//! What should happen next in each group. Decisions only: the caller stores them, each in one transaction.

use jiff::Timestamp;
use refit_types::{Group, GroupRecord, HostId, Revision};

use super::draft::{Draft, less_one};
use super::group_index::{GroupIndex, deadlines};
use super::view::Unreadable;
use super::{Engine, PackedHost, terms};
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
            consider(index.carried.first().map(|(until, _)| *until));
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
            changes_members: false,
            admits: false,
            left: batch,
            terms: terms(&self.view, self.reachable_since, group)?,
            now,
            enabled,
            stopped: !enabled || plan.paused.is_some() || view.record.paused.is_some(),
            is_busy,
            // An unreadable host may be in flight, or may never have started.
            knows_all: view.unreadable.is_none() && self.view.unreadable.is_none(),
            // Every host change that other servers made before these records were written is known.
            is_caught_up: self.applied >= view.revision.unwrap_or_default().max(plan.revision),
        };
        let may_start = !draft.stopped && draft.knows_all && self.view.missing(group).next().is_none();

        self.end(&mut draft, index, limits);
        draft.halt(limits);
        draft.close(view);
        self.revoke(&mut draft, index, limits);
        self.suspend_or_resume(&mut draft, index, limits);
        let opened = may_start && draft.open(index, view);
        if may_start {
            draft.admit_again(index);
        }
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

    /// Finishes hosts whose result is known or whose deadline has passed. While hosts are stopped, a start that took too
    /// long is revoked, because the stop may be why; a host that is lost has failed all the same. Newcomers give their slots
    /// back and are not counted.
    fn end(&self, draft: &mut Draft, index: &GroupIndex, limits: &Group) {
        let (is_busy, left) = (draft.is_busy, draft.left);
        let is_member = |host: &HostId| self.view.hosts.get(*host).is_some_and(PackedHost::is_member);
        draft.knows_all &= !index.ended.iter().any(|host| is_busy(*host) && is_member(host));
        for host in index.ended.iter().filter(|host| !is_busy(**host)).take(left) {
            let Some(packed) = self.view.hosts.get(*host) else { continue };
            draft.release(packed);
            let is_member = packed.is_member();
            let transition = match packed.ended() {
                _ if packed.carried() => HostTransition::Settle,
                _ if !packed.on_version() && packed.undone() => {
                    draft.record.failed += u32::from(is_member);
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
                    draft.record.upgraded += u32::from(is_member);
                    HostTransition::Finish(AttemptEnd::Upgraded)
                }
            };
            draft.add(*host, transition, packed);
        }
        let now = Micros::from(draft.now);
        let left = draft.left;
        let settled = index.carried.iter().take_while(|(until, _)| *until <= now);
        for (_, host) in settled.filter(|(_, host)| !is_busy(*host)).take(left) {
            let Some(packed) = self.view.hosts.get(*host) else { continue };
            draft.release(packed);
            draft.add(*host, HostTransition::Settle, packed);
        }
        let left = draft.left;
        let overdue = index.flying.iter().take_while(|(deadline, _)| *deadline <= now);
        for (_, host) in overdue.filter(|(_, host)| !is_busy(*host)).take(left) {
            let Some(packed) = self.view.hosts.get(*host) else { continue };
            let Some(started) = packed.started() else { continue };
            let is_lost = deadlines(packed, started, limits, self.reachable_since).lost <= now;
            if packed.suspended() && !draft.stopped && !is_lost {
                draft.add(*host, HostTransition::Resume, packed);
                continue;
            }
            draft.release(packed);
            let transition = match is_lost {
                true => {
                    draft.record.failed += u32::from(packed.is_member());
                    HostTransition::Finish(AttemptEnd::Lost)
                }
                false if draft.stopped => HostTransition::Revoke,
                false => {
                    draft.record.timed_out += u32::from(packed.is_member());
                    HostTransition::Finish(AttemptEnd::TimedOut)
                }
            };
            draft.add(*host, transition, packed);
        }
    }

    /// Revokes the starts that were not acknowledged before the window closed or hosts were stopped. They are not counted.
    /// A host that acknowledged may have switched: it keeps its slot until it reports, or its deadline passes.
    fn revoke(&self, draft: &mut Draft, index: &GroupIndex, limits: &Group) {
        if draft.record.window.is_some() && !draft.stopped {
            return;
        }
        let hosts = index.unacknowledged.iter().copied();
        for host in self.before_deadline(draft, limits, hosts) {
            let Some(packed) = self.view.hosts.get(host) else { continue };
            draft.release(packed);
            draft.add(host, HostTransition::Revoke, packed);
        }
    }

    /// Time for which hosts are stopped does not count against those in flight: they are marked when it begins, and their
    /// deadlines move when it ends.
    fn suspend_or_resume(&self, draft: &mut Draft, index: &GroupIndex, limits: &Group) {
        let is_new = |host: &HostId| {
            self.view.hosts.get(*host).is_some_and(|packed| packed.acknowledged() && !packed.suspended())
        };
        let are_marked = index.suspended.len() + index.unacknowledged.len() >= index.flying.len();
        let (hosts, transition) = match draft.stopped {
            true if are_marked => return,
            true => {
                let flying = index.flying.iter().map(|(_, host)| *host).filter(is_new);
                (self.before_deadline(draft, limits, flying), HostTransition::Suspend)
            }
            false => {
                // Those whose agents acknowledge nothing any more are revoked with the window.
                let is_open = draft.record.window.is_some();
                let is_kept = |host: &HostId| is_open || !index.unacknowledged.contains(host);
                let suspended = index.suspended.iter().copied().filter(is_kept);
                (self.before_deadline(draft, limits, suspended), HostTransition::Resume)
            }
        };
        for host in hosts {
            let Some(packed) = self.view.hosts.get(host) else { continue };
            draft.add(host, transition, packed);
        }
    }

    /// As many of these hosts as fit into the batch, without those past their deadline: they are finished instead.
    fn before_deadline(
        &self,
        draft: &Draft,
        limits: &Group,
        hosts: impl Iterator<Item = HostId>,
    ) -> Vec<HostId> {
        let now = Micros::from(draft.now);
        let is_early = |host: &HostId| {
            let packed = self.view.hosts.get(*host);
            packed.and_then(|packed| Some((packed, packed.started()?))).is_some_and(|(packed, started)| {
                deadlines(packed, started, limits, self.reachable_since).first() > now
            })
        };
        hosts.filter(|host| !(draft.is_busy)(*host) && is_early(host)).take(draft.left).collect()
    }

    /// Adds the connected hosts as members, and those that may still be under way: they take their slots with them, so
    /// that the limit holds over a change of the version. Once all are members, hosts may start.
    fn admit(&self, draft: &mut Draft, index: &GroupIndex) {
        if !draft.record.admitting {
            return;
        }
        draft.admits = true;
        let now = Micros::from(draft.now);
        let terms = draft.terms;
        let is_unsettled =
            |host: &HostId| self.view.hosts.get(*host).is_some_and(|packed| terms.is_unsettled(packed, now));
        let guests = index.guests_flying.iter().copied();
        let flying = guests.chain(index.unsettled_at(now)).map(|host| (host, true));
        let live = index.live(now).copied().filter(|host| !is_unsettled(host)).map(|host| (host, false));
        let mut is_complete = true;
        for (host, in_flight) in flying.chain(live) {
            if (draft.is_busy)(host) || draft.left == 0 || in_flight && draft.has(host) {
                is_complete = false;
                // Those behind it are not looked at once the batch is full.
                if draft.left == 0 {
                    break;
                }
                continue;
            }
            let Some(packed) = self.view.hosts.get(host) else { continue };
            draft.record.members += 1;
            let transition = match in_flight {
                true if packed.is_newcomer() => {
                    let guests = draft.record.newcomers_in_flight();
                    draft.record.set_newcomers_in_flight(guests.saturating_sub(1));
                    HostTransition::AdmitInFlight
                }
                true => {
                    draft.record.in_flight += 1;
                    HostTransition::AdmitInFlight
                }
                false if packed.on_version() => {
                    draft.record.upgraded += 1;
                    HostTransition::AdmitUpgraded
                }
                false => HostTransition::Admit,
            };
            draft.add(host, transition, packed);
            draft.changes_members = true;
        }
        if is_complete && draft.is_caught_up && draft.knows_all {
            draft.record.admitting = false;
            draft.record.sealed = true;
        }
    }
}
