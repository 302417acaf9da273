//! The engine: what is known of every host and group, indexed so that one event costs the same in a fleet of
//! ten and of a million.

mod clock;
mod decide;
mod index;
mod slot;

use std::collections::HashMap;

use jiff::Timestamp;
use refit_types::{GroupName, GroupRecord, GroupState, HostId, Schedule};

use crate::moment::Moment;
use crate::{Answer, HostFacts, Plan, Waiting};
use clock::Clock;
pub use decide::Decision;
use index::Index;
pub(crate) use slot::Slot;

/// Knows every host and every group of one epoch, and decides what is next.
#[derive(Debug, Clone, PartialEq)]
pub struct Engine {
    plan: Plan,
    hosts: HashMap<HostId, Slot>,
    groups: Vec<Index>,
    /// The window of hosts without a group.
    policy: Clock,
    /// Hosts that no group takes, and how many of them have the version.
    ungrouped: u32,
    ungrouped_on_version: u32,
    /// Since when the store has been reachable: nobody is called lost for a time in which nobody was heard.
    reachable_since: Moment,
}

/// How far a group is, beyond what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// How many may be in flight.
    pub limit: u32,
    /// Members that are not on the version and whose updaters will not bring them there.
    pub held: u32,
    /// Members that have not started and that nobody hears.
    pub away: u32,
    /// Members that could start now.
    pub ready: u32,
    /// Hosts that become members when the group next opens.
    pub newcomers: u32,
}

impl Engine {
    /// An engine that knows no host and no record yet.
    pub fn new(plan: Plan, reachable_since: Timestamp) -> Self {
        let fresh = |group: &refit_types::Group| {
            Index::new(GroupRecord::fresh(plan.epoch, plan.began_at), group.window.clone())
        };
        let window = match plan.schedule {
            Schedule::Critical => plan.policy.critical.window.clone(),
            _ => plan.policy.regular.window.clone(),
        };
        Self {
            groups: plan.groups.iter().map(fresh).collect(),
            hosts: HashMap::new(),
            policy: Clock::new(window),
            ungrouped: 0,
            ungrouped_on_version: 0,
            reachable_since: reachable_since.into(),
            plan,
        }
    }

    /// What it works by.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Goes on with other limits, hours and switches of the same epoch.
    pub fn replan(&mut self, plan: Plan) {
        let next = Self::new(plan, Timestamp::UNIX_EPOCH);
        for ((index, fresh), group) in self.groups.iter_mut().zip(next.groups).zip(&next.plan.groups) {
            index.clock = fresh.clock;
            index.reschedule(&self.hosts, group, self.reachable_since);
        }
        self.policy = next.policy;
        self.plan = next.plan;
    }

    /// Notes since when the store has been reachable.
    pub fn reachable_since(&mut self, since: Timestamp) {
        self.reachable_since = since.into();
        for (index, group) in self.groups.iter_mut().zip(&self.plan.groups) {
            index.reschedule(&self.hosts, group, self.reachable_since);
        }
    }

    /// Takes in what is stored of a group. A record of an earlier epoch says that nothing happened yet in
    /// this one; one of a later epoch is none of this engine's business.
    pub fn record(&mut self, group: usize, record: &GroupRecord) {
        let (Some(index), Some(limits)) = (self.groups.get_mut(group), self.plan.groups.get(group)) else {
            return;
        };
        let record = match record.epoch.cmp(&self.plan.epoch) {
            std::cmp::Ordering::Equal => record.clone(),
            std::cmp::Ordering::Less => record.renewed(self.plan.epoch, self.plan.began_at),
            std::cmp::Ordering::Greater => return,
        };
        if record.epoch == index.record.epoch && record.round < index.record.round {
            return;
        }
        let another_round = index.record.round != record.round;
        index.record = record;
        if another_round {
            index.begin_round(&self.hosts, limits, self.reachable_since);
        }
    }

    /// What it knows of a group.
    pub fn group_record(&self, group: usize) -> Option<&GroupRecord> {
        self.groups.get(group).map(|index| &index.record)
    }

    /// Takes in what is known of a host now.
    pub fn host(&mut self, facts: &HostFacts) {
        let slot = Slot::of(facts);
        let before = self.hosts.insert(facts.host, slot);
        if before != Some(slot) {
            self.take_out(facts.host, before);
            self.put_in(facts.host, slot);
        }
    }

    /// Forgets a host that has left the fleet.
    pub fn forget(&mut self, host: HostId) {
        let before = self.hosts.remove(&host);
        self.take_out(host, before);
    }

    /// What it knows of a host.
    pub fn facts(&self, host: HostId) -> Option<HostFacts> {
        self.hosts.get(&host).map(|slot| slot.facts(host))
    }

    /// How many hosts it knows.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// How many hosts no group takes, and how many of them have the version.
    pub fn ungrouped(&self) -> (u32, u32) {
        (self.ungrouped, self.ungrouped_on_version)
    }

    /// How far a group is.
    pub fn progress(&self, group: usize) -> Progress {
        let (Some(index), Some(limits)) = (self.groups.get(group), self.plan.groups.get(group)) else {
            return Progress::default();
        };
        Progress {
            limit: limits.max_in_flight.ceil_of(index.record.members),
            held: index.held,
            away: count(index.away.len()),
            ready: count(index.ready.len()),
            newcomers: count(index.newcomers.len()),
        }
    }

    /// What a host that presents this UUID, or none that is known, is told at that moment.
    pub fn answer(&self, host: Option<HostId>, now: Timestamp) -> Answer {
        let policy = &self.plan.policy;
        let slot = host.and_then(|host| self.hosts.get(&host));
        let grouped = slot.and_then(|slot| Some((slot, slot.group()?)));
        match (self.plan.schedule, grouped) {
            (Schedule::Immediate, _) => Answer {
                auto_update: policy.enabled,
                jitter_seconds: policy.immediate.jitter_seconds,
                attempt: 0,
            },
            (_, Some((slot, group))) => {
                let (Some(index), Some(limits)) = (self.groups.get(group), self.plan.groups.get(group))
                else {
                    return Answer { auto_update: false, jitter_seconds: 0, attempt: 0 };
                };
                let due = policy.enabled && index.is_told(slot, limits, now);
                Answer {
                    auto_update: due,
                    jitter_seconds: limits.jitter_seconds,
                    attempt: if due { slot.attempt } else { 0 },
                }
            }
            (schedule, None) => {
                let schedule =
                    if schedule == Schedule::Critical { &policy.critical } else { &policy.regular };
                Answer {
                    auto_update: policy.enabled && self.policy.is_open(now),
                    jitter_seconds: schedule.jitter_seconds,
                    attempt: 0,
                }
            }
        }
    }

    /// The attempt that a host's agent should wake its updater for now, if any: it has not ended, and its
    /// updater would do it. Unlike the answer to strangers, this may depend on what the host runs.
    pub fn hint(&self, host: HostId, now: Timestamp) -> Option<u64> {
        let slot = self.hosts.get(&host)?;
        let answer = self.answer(Some(host), now);
        let has_it = slot.on_version() || slot.proving();
        (answer.auto_update && !has_it && !slot.held() && slot.ended().is_none()).then_some(answer.attempt)
    }

    /// Why a group is not moving; nothing while it is, or when it has ended.
    pub fn waiting(&self, group: usize, now: Timestamp) -> Option<Waiting> {
        let (index, limits) = (self.groups.get(group)?, self.plan.groups.get(group)?);
        let record = &index.record;
        if let GroupState::Halted(halt) = record.state {
            return Some(Waiting::Halted(halt));
        }
        let has_ended =
            record.state == GroupState::Succeeded && index.ready.is_empty() && index.newcomers.is_empty();
        if has_ended {
            return None;
        }
        if !self.plan.policy.enabled {
            return Some(Waiting::Disabled);
        }
        if let Some(since) = self.plan.paused {
            return Some(Waiting::Paused { since });
        }
        if let Some(since) = record.paused {
            return Some(Waiting::GroupPaused { since });
        }
        let missing: Vec<GroupName> = self.missing(group).map(|name| name.to_owned()).collect();
        if !missing.is_empty() {
            return Some(Waiting::Requires(missing));
        }
        let is_open = record.window.is_some_and(|window| window.contains(now));
        if !is_open && record.run.is_none_or(|run| !run.contains(now)) {
            // One that has begun is about to be taken up.
            let opens = index.clock.next_opening(now).filter(|_| !index.clock.is_open(now))?;
            return (opens > now).then_some(Waiting::Window { opens });
        }
        if limits.max_in_flight.get() == 0 {
            return Some(Waiting::NoSlots);
        }
        let away = count(index.away.len());
        let only_away = record.sealed && record.in_flight == 0 && index.ready.is_empty() && away > 0;
        only_away.then_some(Waiting::Away { away, members: record.members })
    }

    /// The window of a group that is open at that moment, or the next one.
    pub fn window(&self, group: usize, now: Timestamp) -> Option<refit_types::Span> {
        let index = self.groups.get(group)?;
        let open = index.record.window.filter(|window| window.contains(now));
        open.or_else(|| index.clock.open_or_next(now))
    }

    /// The window of hosts without a group that is open at that moment, or the next one.
    pub fn policy_window(&self, now: Timestamp) -> Option<refit_types::Span> {
        self.policy.open_or_next(now)
    }

    /// The groups that must succeed before that one and have not.
    fn missing(&self, group: usize) -> impl Iterator<Item = &GroupName> {
        let missing = |group: &&usize| {
            self.groups.get(**group).is_none_or(|index| index.record.state != GroupState::Succeeded)
        };
        self.plan.requires(group).iter().filter(missing).map(|group| &self.plan.groups[*group].name)
    }

    fn take_out(&mut self, host: HostId, slot: Option<Slot>) {
        let Some(slot) = slot else { return };
        match slot.group() {
            Some(group) => {
                if let (Some(index), Some(limits)) = (self.groups.get_mut(group), self.plan.groups.get(group))
                {
                    index.take_out(host, &slot, limits, self.reachable_since);
                }
            }
            None => {
                self.ungrouped -= 1;
                self.ungrouped_on_version -= u32::from(slot.on_version());
            }
        }
    }

    fn put_in(&mut self, host: HostId, slot: Slot) {
        match slot.group() {
            Some(group) => {
                if let (Some(index), Some(limits)) = (self.groups.get_mut(group), self.plan.groups.get(group))
                {
                    index.put_in(host, &slot, limits, self.reachable_since);
                }
            }
            None => {
                self.ungrouped += 1;
                self.ungrouped_on_version += u32::from(slot.on_version());
            }
        }
    }
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
