//! The engine: the state of every host and group, indexed so that one event costs the same in a fleet of ten and of a
//! million. The owner of the fleet's state passes every change to it and carries out its decisions.

mod decide;
mod draft;
mod group_index;
mod packed_host;
mod view;
mod window_cache;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use refit_types::{GroupName, GroupRecord, HostId, Revision, Schedule};

use crate::micros::Micros;
use crate::{HostFacts, HostMap, Plan, Ungrouped};
pub use decide::{Decision, InProgress, PlannedTransition};
use group_index::{GroupIndex, Terms};
pub(crate) use packed_host::PackedHost;
use view::{GroupView, Unreadable};
pub use view::{Progress, RolloutView};
use window_cache::WindowCache;

/// Knows every host and every group of one epoch, and decides what is next.
#[derive(Debug, Clone, PartialEq)]
pub struct Engine {
    view: RolloutView,
    indexes: Vec<GroupIndex>,
    /// Hosts whose records cannot be read and whose group is unknown, with the keys of the records.
    unreadable: BTreeMap<HostId, Box<str>>,
    /// Since when the store has been reachable: a host is not counted as lost for the time of an outage.
    reachable_since: Micros,
    /// Every change of hosts up to here is known.
    applied: Revision,
}

impl Engine {
    /// An engine that knows no host and no record yet.
    pub fn new(plan: Plan, reachable_since: Timestamp) -> Self {
        let groups = plan.groups.iter().map(|group| {
            let record = GroupRecord::fresh(plan.epoch, plan.began_at);
            GroupView::new(record, WindowCache::new(group.window.clone()))
        });
        let window = match plan.schedule {
            Schedule::Critical => plan.policy.critical.window.clone(),
            _ => plan.policy.regular.window.clone(),
        };
        let mut engine = Self {
            indexes: vec![GroupIndex::default(); plan.groups.len()],
            view: RolloutView {
                groups: groups.collect(),
                hosts: HostMap::default(),
                policy: WindowCache::new(window),
                ungrouped: Ungrouped::default(),
                unreadable: None,
                plan: Arc::new(plan),
            },
            unreadable: BTreeMap::new(),
            reachable_since: reachable_since.into(),
            applied: Revision::default(),
        };
        (0..engine.indexes.len()).for_each(|group| engine.count(group));
        engine
    }

    /// The current state, for readers.
    pub fn view(&self) -> &RolloutView {
        &self.view
    }

    /// The current plan.
    pub fn plan(&self) -> &Plan {
        &self.view.plan
    }

    /// Replaces limits, windows and switches within the same epoch.
    pub fn replan(&mut self, plan: Plan) {
        let next = Self::new(plan, Timestamp::UNIX_EPOCH);
        for (view, fresh) in self.view.groups.iter_mut().zip(next.view.groups) {
            view.windows = fresh.windows;
        }
        self.view.policy = next.view.policy;
        self.view.plan = next.view.plan;
        self.reschedule();
    }

    /// Sets since when the store has been reachable.
    pub fn reachable_since(&mut self, since: Timestamp) {
        self.reachable_since = since.into();
        self.reschedule();
    }

    /// Sets up to which revision every change of hosts is known. Decisions that depend on the absence of hosts are made
    /// only after this has reached the revisions of the records involved.
    pub fn applied(&mut self, revision: Revision) {
        self.applied = self.applied.max(revision);
    }

    fn reschedule(&mut self) {
        for group in 0..self.indexes.len() {
            if let Some((index, hosts, terms)) = self.parts(group) {
                index.reschedule(hosts, terms);
            }
            self.count(group);
        }
    }

    /// Applies a group's record. A record of an earlier epoch means that nothing has happened in this one; records of a
    /// later epoch, and records older than the known one, are ignored.
    pub fn record(&mut self, group: usize, record: &GroupRecord, revision: Revision) {
        let Some(view) = self.view.groups.get_mut(group) else { return };
        if view.revision.is_some_and(|known| revision < known) {
            return;
        }
        let plan = &self.view.plan;
        let record = match record.epoch.cmp(&plan.epoch) {
            std::cmp::Ordering::Equal => record.clone(),
            std::cmp::Ordering::Less => record.renewed(plan.epoch, plan.began_at),
            std::cmp::Ordering::Greater => return,
        };
        let is_another_round = view.record.round != record.round;
        view.record = record;
        view.revision = Some(revision);
        view.unreadable = view.unreadable.take().filter(|why| !matches!(why, Unreadable::Group { .. }));
        if is_another_round && let Some((index, hosts, terms)) = self.parts(group) {
            index.begin_round(hosts, terms);
        }
        self.count(group);
    }

    /// Marks a group's record as unreadable: the group stops, and groups that require it wait. Returns whether it was
    /// readable before.
    pub fn unreadable_record(&mut self, group: usize, key: &str, revision: Revision) -> bool {
        let Some(view) = self.view.groups.get_mut(group) else { return false };
        let is_outdated = view.revision.is_some_and(|known| revision < known);
        if is_outdated || matches!(view.unreadable, Some(Unreadable::Group { .. })) {
            return false;
        }
        view.revision = Some(revision);
        view.unreadable = Some(Unreadable::Group { key: key.into() });
        true
    }

    /// Applies that the group has no record as of that revision: nothing has happened in it.
    pub fn no_record(&mut self, group: usize, as_of: Revision) {
        let Some(view) = self.view.groups.get_mut(group) else { return };
        if view.revision.is_some_and(|known| known <= as_of) {
            let fresh = GroupRecord::fresh(self.view.plan.epoch, self.view.plan.began_at);
            self.record(group, &fresh, as_of);
            self.view.groups[group].revision = None;
        }
    }

    /// The group records with their revisions, for the engine of the next epoch; none for unreadable ones.
    pub fn into_group_records(self) -> Vec<(GroupName, Option<GroupRecord>, Revision)> {
        let groups = self.view.groups.into_iter().zip(&self.view.plan.groups);
        let kept = groups.filter_map(|(view, group)| {
            let is_readable = !matches!(view.unreadable, Some(Unreadable::Group { .. }));
            Some((group.name.clone(), is_readable.then_some(view.record), view.revision?))
        });
        kept.collect()
    }

    /// Applies the facts of a host from the record of that revision.
    pub fn host(&mut self, facts: &HostFacts, revision: Revision) {
        self.replace(facts.host, PackedHost::of(facts, revision));
    }

    /// Marks a host's record as unreadable: the host stays in its phase, and no host starts in its group, or in any
    /// group if its group is unknown.
    pub fn unreadable_host(&mut self, host: HostId, group: Option<usize>, key: &str) {
        let known = self.view.hosts.get(host).copied().unwrap_or_else(PackedHost::unknown);
        let group = known.group().or(group).filter(|group| *group < self.indexes.len());
        self.replace(host, known.unreadable(group));
        let unreadable = match group {
            Some(group) => &mut self.indexes[group].unreadable,
            None => &mut self.unreadable,
        };
        unreadable.insert(host, key.into());
        self.view.unreadable = self.unreadable.values().next().cloned();
        group.into_iter().for_each(|group| self.count(group));
    }

    /// Removes a host that has left the fleet.
    pub fn forget(&mut self, host: HostId) {
        if let Some(before) = self.view.hosts.remove(host) {
            self.leave(host, &before);
        }
    }

    fn replace(&mut self, host: HostId, packed: PackedHost) {
        let before = self.view.hosts.insert(host, packed);
        if let Some(before) = before {
            if before.at(packed.revision) == packed {
                return;
            }
            self.leave(host, &before);
        }
        self.enter(host, &packed);
    }

    fn leave(&mut self, id: HostId, host: &PackedHost) {
        match host.group() {
            Some(group) => {
                if let Some((index, _, terms)) = self.parts(group) {
                    index.remove(id, host, terms);
                }
                self.count(group);
            }
            None if host.is_unreadable() => {
                self.unreadable.remove(&id);
                self.view.unreadable = self.unreadable.values().next().cloned();
            }
            None => {
                let ungrouped = &mut self.view.ungrouped;
                ungrouped.hosts -= 1;
                ungrouped.on_version -= u32::from(host.on_version());
                ungrouped.behind -= u32::from(host.is_behind());
            }
        }
    }

    fn enter(&mut self, id: HostId, host: &PackedHost) {
        match host.group() {
            Some(group) => {
                if let Some((index, _, terms)) = self.parts(group) {
                    index.insert(id, host, terms);
                }
                self.count(group);
            }
            None if host.is_unreadable() => {}
            None => {
                let ungrouped = &mut self.view.ungrouped;
                ungrouped.hosts += 1;
                ungrouped.on_version += u32::from(host.on_version());
                ungrouped.behind += u32::from(host.is_behind());
            }
        }
    }

    /// A group's index, and what determines the phases of its hosts.
    fn parts(&mut self, group: usize) -> Option<(&mut GroupIndex, &HostMap<PackedHost>, Terms<'_>)> {
        let terms = terms(&self.view, self.reachable_since, group)?;
        Some((self.indexes.get_mut(group)?, &self.view.hosts, terms))
    }

    /// Updates the view of a group from its index.
    fn count(&mut self, group: usize) {
        let limits = self.view.plan.groups.get(group);
        if let (Some(view), Some(index), Some(limits)) =
            (self.view.groups.get_mut(group), self.indexes.get(group), limits)
        {
            let limit = limits.max_in_flight.slots(view.record.members);
            view.count(index, limit);
        }
    }
}

fn terms(view: &RolloutView, reachable_since: Micros, group: usize) -> Option<Terms<'_>> {
    let round = view.groups.get(group)?.record.round;
    let (group, began_at) = (view.plan.groups.get(group)?, view.plan.began_at.into());
    Some(Terms { group, round, reachable_since, began_at })
}
