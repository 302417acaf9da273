//! One server of the property tests: its cache of the store, its engine, and its pending commits.

use jiff::{SignedDuration, Timestamp};
use refit_rollout::{Decision, Engine, HostFacts, InProgress, Plan, apply_transition, has_ended_well};
use refit_types::{Group, GroupRecord, HostId, HostRecord, Revision};

use super::store::{Change, Event, Records, Store, Stored};
use crate::model;

/// One server: a cache of the store that is as old as it happens to be, and the engine on top of it.
#[derive(Debug, Clone)]
pub struct Server {
    pub cache: Records,
    /// How much of the watch it has seen.
    pub seen: usize,
    pub engine: Engine,
    pub reachable_since: Timestamp,
    /// By how much its clock is off.
    pub skew: SignedDuration,
    pub batch: usize,
    /// What it has decided and the store has not answered yet.
    pub commits: Vec<Commit>,
}

/// A transaction on its way to the store: what it compares, and what it writes.
#[derive(Debug, Clone)]
pub struct Commit {
    pub decision: Decision,
    /// When it was decided, by the server's clock.
    pub decided_at: Timestamp,
    settings: Revision,
    groups: Vec<(String, Option<Revision>)>,
    name: String,
    hosts: Vec<(HostId, Revision, Box<HostRecord>)>,
}

/// What the engine is told of a host.
pub fn facts(plan: &Plan, host_record: &HostRecord) -> HostFacts {
    HostFacts::of(plan, host_record, model::lost_since(host_record))
}

impl Server {
    /// Starts on what is stored.
    pub fn start(store: &Store, now: Timestamp, batch: usize) -> Self {
        let settings = store.records.settings();
        let plan = Plan::new(&settings.rollout, store.records.settings.revision, &settings.config);
        let mut server = Self {
            engine: Engine::new(plan, now),
            cache: store.records.clone(),
            seen: store.log.len(),
            reachable_since: now,
            skew: SignedDuration::ZERO,
            batch,
            commits: Vec::new(),
        };
        server.engine = server.rebuilt(store);
        server
    }

    /// An engine that knows nothing but this server's cache.
    pub fn rebuilt(&self, store: &Store) -> Engine {
        let settings = &self.cache.settings.value;
        let plan = Plan::new(&settings.rollout, self.cache.settings.revision, &settings.config);
        let mut engine = Engine::new(plan.clone(), self.reachable_since);
        for (name, stored) in &self.cache.groups {
            if let Some(group) = plan.position(name) {
                engine.record(group, &stored.value, stored.revision);
            }
        }
        for stored in self.cache.hosts.values() {
            if let Some(host_record) = stored.value.as_deref() {
                engine.host(&facts(&plan, host_record), stored.revision);
            }
        }
        engine.applied(self.applied(store));
        engine
    }

    /// Up to where it has seen every change.
    fn applied(&self, store: &Store) -> Revision {
        self.seen.checked_sub(1).map_or(Revision::default(), |last| store.log[last].revision)
    }

    /// Takes in one event; one that is older than what it knows is dropped.
    pub fn take_in(&mut self, event: &Event, store: &Store) {
        match &event.change {
            Change::Settings(settings) => {
                if event.revision <= self.cache.settings.revision {
                    return;
                }
                let same_epoch = settings.rollout.epoch == self.cache.settings.value.rollout.epoch;
                self.cache.settings = Stored { revision: event.revision, value: (**settings).clone() };
                if same_epoch {
                    self.engine.replan(Plan::new(&settings.rollout, event.revision, &settings.config));
                } else {
                    self.engine = self.rebuilt(store);
                }
            }
            Change::Group(name, record) => {
                if self.cache.groups.get(name).is_some_and(|known| event.revision <= known.revision) {
                    return;
                }
                self.cache.groups.insert(
                    name.clone(),
                    Stored { revision: event.revision, value: refit_types::GroupRecord::clone(record) },
                );
                if let Some(group) = self.engine.plan().position(name) {
                    self.engine.record(group, record, event.revision);
                }
            }
            Change::Host(host, host_record) => {
                if self.cache.hosts.get(host).is_some_and(|known| event.revision <= known.revision) {
                    return;
                }
                self.cache
                    .hosts
                    .insert(*host, Stored { revision: event.revision, value: host_record.clone() });
                match host_record {
                    Some(host_record) => {
                        let facts = facts(self.engine.plan(), host_record);
                        self.engine.host(&facts, event.revision);
                    }
                    None => self.engine.forget(*host),
                }
            }
        }
    }

    /// Hears of so many transactions; each is heard of as a whole.
    pub fn catch_up(&mut self, store: &Store, transactions: usize) {
        for _ in 0..transactions {
            let Some(next) = store.log.get(self.seen) else { break };
            let rest = &store.log[self.seen..];
            let length = rest.iter().take_while(|event| event.revision == next.revision).count();
            for event in &rest[..length] {
                self.take_in(event, store);
            }
            self.seen += length;
            let applied = self.applied(store);
            self.engine.applied(applied);
        }
    }

    pub fn catch_up_with_all(&mut self, store: &Store) {
        self.catch_up(store, usize::MAX);
    }

    /// Hears again what it has heard before.
    pub fn hear_again(&mut self, store: &Store, back: usize) {
        let from = self.seen.saturating_sub(back);
        for event in &store.log[from..self.seen] {
            self.take_in(event, store);
        }
    }

    /// Reads the operators' settings and the records of all groups, which may be newer than its watch.
    pub fn look(&mut self, store: &Store) {
        let at = store.log.last().map_or(self.reachable_since, |event| event.at);
        let settings = &store.records.settings;
        let settings = Event {
            at,
            revision: settings.revision,
            change: Change::Settings(Box::new(settings.value.clone())),
        };
        self.take_in(&settings, store);
        for (name, group) in &store.records.groups {
            let change = Change::Group(name.clone(), Box::new(group.value.clone()));
            self.take_in(&Event { at, revision: group.revision, change }, store);
        }
    }

    pub fn is_up_to_date(&self, store: &Store) -> bool {
        self.seen == store.log.len()
    }

    /// Whether it has seen all that was written until then.
    pub fn has_seen_until(&self, store: &Store, then: Timestamp) -> bool {
        store.log.get(self.seen).is_none_or(|event| event.at > then)
    }

    /// Whether something in its cache is of an epoch that it has not heard of yet.
    pub fn is_behind_its_cache(&self) -> bool {
        let epoch = self.cache.settings.value.rollout.epoch;
        let hosts = self.cache.hosts.values().filter_map(|stored| stored.value.as_ref()?.upgrade.as_ref());
        self.cache.groups.values().any(|stored| stored.value.epoch > epoch)
            || hosts.into_iter().any(|upgrade| upgrade.epoch > epoch)
    }

    /// Whether it takes the rollout for one that has ended well.
    pub fn has_ended_well(&self) -> bool {
        let record = |group: &Group| Some(self.cache.group(group.name.as_str()));
        has_ended_well(&self.engine.plan().groups, record, Some(self.engine.view().ungrouped()))
    }

    /// What it decides now, as transactions that are yet to be stored.
    pub fn decide(&mut self, now: Timestamp) -> Vec<Commit> {
        let (groups, hosts): (Vec<usize>, Vec<HostId>) = (
            self.commits.iter().map(|commit| commit.decision.group).collect(),
            self.commits.iter().flat_map(|commit| commit.hosts.iter().map(|(host, _, _)| *host)).collect(),
        );
        let in_progress =
            InProgress { group: &|group| groups.contains(&group), host: &|host| hosts.contains(&host) };
        let decisions = self.engine.decide(now, self.batch, in_progress);
        decisions.into_iter().map(|decision| self.commit(decision, now)).collect()
    }

    fn commit(&self, decision: Decision, now: Timestamp) -> Commit {
        let plan = self.engine.plan();
        let hosts = decision.transitions.iter().map(|planned| {
            let mut host_record = self.cache.hosts[&planned.host].value.clone().unwrap();
            let upgrade = apply_transition(
                plan,
                decision.group,
                &decision.record,
                &host_record,
                planned.transition,
                now,
            );
            host_record.upgrade = Some(Box::new(upgrade.unwrap()));
            (planned.host, planned.revision, host_record)
        });
        let hosts = hosts.collect();
        let named =
            |(group, revision): (usize, Option<Revision>)| (plan.groups[group].name.to_string(), revision);
        let own = (decision.group, decision.revision);
        let groups = decision.depends_on.iter().copied().chain([own]).map(named).collect();
        let name = plan.groups[decision.group].name.to_string();
        Commit { settings: self.cache.settings.revision, groups, name, hosts, decided_at: now, decision }
    }

    /// Learns that its transaction was stored.
    pub fn committed(&mut self, commit: &Commit, revision: Revision, store: &Store) {
        let at = commit.decided_at;
        let change = Change::Group(commit.name.clone(), Box::new(commit.decision.record.clone()));
        self.take_in(&Event { at, revision, change }, store);
        for (host, _, host_record) in &commit.hosts {
            let change = Change::Host(*host, Some(host_record.clone()));
            self.take_in(&Event { at, revision, change }, store);
        }
    }
}

impl Commit {
    /// Whether everything that it compares is still so.
    pub fn holds(&self, store: &Store) -> bool {
        let records = &store.records;
        let group_holds = |(name, revision): &(String, Option<Revision>)| {
            records.groups.get(name).map(|stored| stored.revision) == *revision
        };
        let host_holds = |(host, revision, _): &(HostId, Revision, Box<HostRecord>)| {
            let stored = records.hosts.get(host).filter(|stored| stored.value.is_some());
            stored.map(|stored| stored.revision) == Some(*revision)
        };
        records.settings.revision == self.settings
            && self.groups.iter().all(group_holds)
            && self.hosts.iter().all(host_holds)
    }

    /// Stores it.
    pub fn store(&self, store: &mut Store, now: Timestamp) -> Revision {
        let hosts = self.hosts.iter().map(|(host, _, host_record)| (*host, Some(host_record.clone())));
        let group: Option<(String, GroupRecord)> = Some((self.name.clone(), self.decision.record.clone()));
        store.put_together(group, hosts.collect(), now)
    }
}
