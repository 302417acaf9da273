//! A read-only view of the engine: update instructions, hints, and why a group is blocked. A clone shares the hosts
//! with the engine, so its cost does not depend on the fleet's size.

use std::sync::Arc;

use jiff::Timestamp;
use refit_types::{GroupName, GroupRecord, GroupState, HostId, Revision, Schedule, Span};

use super::group_index::GroupIndex;
use super::packed_host::PackedHost;
use super::window_cache::WindowCache;
use crate::micros::Micros;
use crate::{Answer, BlockedBy, HostFacts, HostMap, Plan, Stopped, Ungrouped};

/// Every host and group of one epoch at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutView {
    pub(crate) plan: Arc<Plan>,
    pub(crate) hosts: HostMap<PackedHost>,
    pub(crate) groups: Vec<GroupView>,
    /// The window of hosts without a group.
    pub(crate) policy: WindowCache,
    /// Hosts that no group takes.
    pub(crate) ungrouped: Ungrouped,
    /// A record that cannot be read, of a host whose group is not known.
    pub(crate) unreadable: Option<Box<str>>,
}

/// One group of a view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GroupView {
    pub(crate) record: GroupRecord,
    /// The revision of the record; none if no record is stored.
    pub(crate) revision: Option<Revision>,
    pub(crate) windows: WindowCache,
    pub(crate) progress: Progress,
    /// Whether only disconnected members are left to start.
    only_away: bool,
    /// Whether no member was upgraded and none can be now, and why.
    stuck: Option<Stuck>,
    /// When the last of the unsettled hosts loses its claim to a slot.
    unsettled_until: Option<Micros>,
    /// The key of a record that cannot be read: the group's own, or that of one of its hosts.
    pub(crate) unreadable: Option<Unreadable>,
}

/// Why no member of a group can be upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stuck {
    /// There is none.
    NoHosts,
    /// All are held, failed or timed out, or were not there when it opened.
    Nobody { away: u32 },
}

/// Which records of a group cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Its own record.
    Group { key: Box<str> },
    /// The records of some of its hosts, of which this is one.
    Hosts { key: Box<str>, count: u32 },
}

/// Counts of a group beyond those in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// How many may be in flight.
    pub limit: u32,
    /// Members that are not on the version and whose updaters refuse it.
    pub held: u32,
    /// Members that have not started and are disconnected.
    pub away: u32,
    /// Members that could start now.
    pub ready: u32,
    /// Hosts that become members when the group next opens.
    pub newcomers: u32,
    /// Hosts that were told in an earlier epoch, have not settled, and have no slot yet.
    pub unsettled: u32,
}

impl GroupView {
    pub(crate) fn new(record: GroupRecord, windows: WindowCache) -> Self {
        Self {
            record,
            revision: None,
            windows,
            progress: Progress::default(),
            only_away: false,
            stuck: None,
            unsettled_until: None,
            unreadable: None,
        }
    }

    /// Copies the counts of the group's index.
    pub(crate) fn count(&mut self, index: &GroupIndex, limit: u32) {
        let record = &self.record;
        self.progress = index.progress(limit);
        self.only_away = record.sealed
            && record.members_in_flight() == 0
            && index.ready.is_empty()
            && !index.away.is_empty();
        self.unsettled_until = index.unsettled.last().map(|(until, _)| *until);
        self.stuck = stuck(record, index);
        if !matches!(self.unreadable, Some(Unreadable::Group { .. })) {
            let first = index.unreadable.values().next();
            let count = super::group_index::count(index.unreadable.len());
            self.unreadable = first.map(|key| Unreadable::Hosts { key: key.clone(), count });
        }
    }

    /// Whether a host of this group is told to update at that moment. Its outcome makes no difference.
    fn is_told(&self, host: &PackedHost, group: &refit_types::Group, now: Timestamp) -> bool {
        if host.is_unreadable() || matches!(self.unreadable, Some(Unreadable::Group { .. })) {
            return false;
        }
        let is_stopped = self.record.is_halted() || self.record.paused.is_some();
        let started = host.started().filter(|_| !is_stopped && !host.carried());
        let Some(started) = started else { return false };
        let in_window = self
            .record
            .window
            .is_some_and(|window| window.contains(now) && started >= Micros::from(window.start));
        let until = started.plus_seconds(group.jitter_seconds).plus_seconds(group.timeout_seconds);
        in_window || (host.acknowledged() && Micros::from(now) < until)
    }
}

/// Why no member can be upgraded; none if one was, or may be.
fn stuck(record: &GroupRecord, index: &GroupIndex) -> Option<Stuck> {
    let may_move = record.upgraded > 0
        || record.members_in_flight() > 0
        || record.admitting
        || !(index.newcomers.is_empty() && index.ready.is_empty() && index.away.is_empty())
        || !(index.ended.is_empty() && index.guests_flying.is_empty());
    let is_empty = record.members == record.removed;
    match (may_move, is_empty) {
        (true, _) => None,
        (false, true) if index.absent.is_empty() => Some(Stuck::NoHosts),
        (false, true) => {
            record.sealed.then(|| Stuck::Nobody { away: super::group_index::count(index.absent.len()) })
        }
        (false, false) => record.sealed.then_some(Stuck::Nobody { away: 0 }),
    }
}

impl RolloutView {
    /// The current plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What is known of a group.
    pub fn group_record(&self, group: usize) -> Option<&GroupRecord> {
        self.groups.get(group).map(|group| &group.record)
    }

    /// What is known of a host.
    pub fn facts(&self, host: HostId) -> Option<HostFacts> {
        self.hosts.get(host).map(|packed| packed.facts(host))
    }

    /// How many hosts are known.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The hosts that no group takes.
    pub fn ungrouped(&self) -> Ungrouped {
        self.ungrouped
    }

    /// How far a group is.
    pub fn progress(&self, group: usize) -> Progress {
        self.groups.get(group).map(|group| group.progress).unwrap_or_default()
    }

    /// The update instruction for the host with this UUID, or for an unknown host.
    pub fn answer(&self, host: Option<HostId>, now: Timestamp) -> Answer {
        let policy = &self.plan.policy;
        let host = host.and_then(|host| self.hosts.get(host));
        if host.is_some_and(PackedHost::is_unreadable) {
            return Answer { auto_update: false, jitter_seconds: 0, attempt: 0 };
        }
        let grouped = host.and_then(|host| Some((host, host.group()?)));
        // Whether a host that is not known belongs to a group that has halted, nobody knows.
        let is_held_up = self.plan.paused.is_some() || host.is_none() && self.stopped().is_some();
        let may_start = policy.enabled && !is_held_up;
        match (self.plan.schedule, grouped) {
            (Schedule::Immediate, _) => {
                Answer { auto_update: may_start, jitter_seconds: policy.immediate.jitter_seconds, attempt: 0 }
            }
            (_, Some((host, group))) => {
                let (Some(view), Some(limits)) = (self.groups.get(group), self.plan.groups.get(group)) else {
                    return Answer { auto_update: false, jitter_seconds: 0, attempt: 0 };
                };
                let due = may_start && view.is_told(host, limits, now);
                Answer {
                    auto_update: due,
                    jitter_seconds: limits.jitter_seconds,
                    attempt: if due { host.attempt } else { 0 },
                }
            }
            (schedule, None) => {
                let schedule =
                    if schedule == Schedule::Critical { &policy.critical } else { &policy.regular };
                Answer {
                    auto_update: may_start && self.policy.is_open(now),
                    jitter_seconds: schedule.jitter_seconds,
                    attempt: 0,
                }
            }
        }
    }

    /// Why the rollout is stopped, if it is.
    pub fn stopped(&self) -> Option<Stopped> {
        let readable = |group: &GroupView| !matches!(group.unreadable, Some(Unreadable::Group { .. }));
        let records = self.groups.iter().map(|group| readable(group).then_some(&group.record));
        Stopped::of(self.plan.paused.is_some(), records)
    }

    /// The attempt that a host's agent should wake its updater for now, if any: one that has not ended and that its
    /// updater accepts. Unlike the unauthenticated answer, this may depend on what the host runs.
    pub fn hint(&self, host: HostId, now: Timestamp) -> Option<u64> {
        let packed = self.hosts.get(host)?;
        let answer = self.answer(Some(host), now);
        let has_it = packed.on_version() || packed.proving();
        let is_due = answer.auto_update && !has_it && !packed.held() && packed.ended().is_none();
        is_due.then_some(answer.attempt)
    }

    /// Why a group makes no progress; none while it does, or when it has finished.
    pub fn blocked_by(&self, group: usize, now: Timestamp) -> Option<BlockedBy> {
        let (view, limits) = (self.groups.get(group)?, self.plan.groups.get(group)?);
        let record = &view.record;
        if let Some(Unreadable::Group { key }) = &view.unreadable {
            return Some(BlockedBy::UnreadableGroup { key: key.clone() });
        }
        if let GroupState::Halted(halt) = record.state {
            return Some(BlockedBy::Halted(halt));
        }
        let has_work = view.progress.ready > 0 || view.progress.newcomers > 0;
        if record.state == GroupState::Succeeded && !has_work {
            return None;
        }
        if !self.plan.policy.enabled {
            return Some(BlockedBy::Disabled);
        }
        if let Some(since) = self.plan.paused {
            return Some(BlockedBy::Paused { since });
        }
        if let Some(since) = record.paused {
            return Some(BlockedBy::GroupPaused { since });
        }
        match (&view.unreadable, &self.unreadable) {
            (Some(Unreadable::Hosts { key, count }), _) => {
                return Some(BlockedBy::UnreadableHosts { key: key.clone(), count: *count });
            }
            (_, Some(key)) => return Some(BlockedBy::UnreadableHosts { key: key.clone(), count: 1 }),
            _ => {}
        }
        let missing: Vec<GroupName> = self.missing(group).map(|name| name.to_owned()).collect();
        if !missing.is_empty() {
            return Some(BlockedBy::Requires(missing));
        }
        let is_unsettled = view.unsettled_until.is_some_and(|until| until > Micros::from(now));
        if let Some(stuck) = view.stuck.filter(|_| !limits.allow_empty && !is_unsettled) {
            return Some(match stuck {
                Stuck::NoHosts => BlockedBy::NoHosts,
                Stuck::Nobody { away } => BlockedBy::NobodyUpgraded {
                    held: view.progress.held,
                    failed: record.failed,
                    timed_out: record.timed_out,
                    away,
                },
            });
        }
        let is_open = record.window.is_some_and(|window| window.contains(now));
        if !is_open && record.run.is_none_or(|run| !run.contains(now)) {
            // A window that has begun is about to be opened.
            let opens = view.windows.next_opening(now).filter(|_| !view.windows.is_open(now))?;
            return (opens > now).then_some(BlockedBy::Window { opens });
        }
        if limits.max_in_flight.is_zero() {
            return Some(BlockedBy::NoSlots { limit: limits.max_in_flight });
        }
        view.only_away.then_some(BlockedBy::Away { away: view.progress.away, members: record.members })
    }

    /// How many hosts of a group are under way at that moment: those in flight, and those that were told in an earlier
    /// epoch, have not settled, and get their slots when the group opens.
    pub fn under_way(&self, group: usize, now: Timestamp) -> u32 {
        let Some(view) = self.groups.get(group) else { return 0 };
        let is_unsettled = view.unsettled_until.is_some_and(|until| until > Micros::from(now));
        view.record.in_flight + if is_unsettled { view.progress.unsettled } else { 0 }
    }

    /// The window of a group that is open at that moment, or the next one.
    pub fn window(&self, group: usize, now: Timestamp) -> Option<Span> {
        let view = self.groups.get(group)?;
        let open = view.record.window.filter(|window| window.contains(now));
        open.or_else(|| view.windows.open_or_next(now))
    }

    /// How many groups are stopped because their records cannot be read.
    pub fn unreadable_groups(&self) -> usize {
        self.groups.iter().filter(|group| matches!(group.unreadable, Some(Unreadable::Group { .. }))).count()
    }

    /// The window of hosts without a group that is open at that moment, or the next one.
    pub fn policy_window(&self, now: Timestamp) -> Option<Span> {
        self.policy.open_or_next(now)
    }

    /// The groups that must succeed before that one and have not.
    pub(crate) fn missing(&self, group: usize) -> impl Iterator<Item = &GroupName> {
        let missing = |group: &&usize| {
            self.groups.get(**group).is_none_or(|view| {
                view.record.state != GroupState::Succeeded
                    || matches!(view.unreadable, Some(Unreadable::Group { .. }))
            })
        };
        self.plan.requires(group).iter().filter(missing).map(|group| &self.plan.groups[*group].name)
    }
}
