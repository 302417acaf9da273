use jiff::{SignedDuration, Timestamp};
use refit_rollout::{Decision, Engine, HostFacts, Plan, marked};
use refit_types::{HostId, Instance};

use super::store::{Change, Event, Records, Store, Stored};
use crate::model;

/// One server: a cache of the store that is as old as it happens to be, and the engine on top of it.
#[derive(Debug, Clone)]
pub struct Server {
    pub cache: Records,
    /// How much of each watch it has seen.
    pub seen: [usize; 3],
    pub engine: Engine,
    pub reachable_since: Timestamp,
    /// By how much its clock is off.
    pub skew: SignedDuration,
    pub batch: usize,
}

/// What the engine is told of a host.
pub fn facts(plan: &Plan, instance: &Instance) -> HostFacts {
    HostFacts::of(plan, instance, model::lost_since(instance))
}

impl Server {
    /// Starts on what is stored.
    pub fn start(store: &Store, now: Timestamp, batch: usize) -> Self {
        let said = store.records.said();
        let plan = Plan::new(&said.rollout, &said.config);
        let mut server = Self {
            engine: Engine::new(plan, now),
            cache: store.records.clone(),
            seen: store.log.each_ref().map(Vec::len),
            reachable_since: now,
            skew: SignedDuration::ZERO,
            batch,
        };
        server.engine = server.rebuilt();
        server
    }

    /// An engine that knows nothing but this server's cache.
    pub fn rebuilt(&self) -> Engine {
        let said = &self.cache.said.value;
        let plan = Plan::new(&said.rollout, &said.config);
        let mut engine = Engine::new(plan.clone(), self.reachable_since);
        for (name, stored) in &self.cache.groups {
            if let Some(group) = plan.position(name) {
                engine.record(group, &stored.value);
            }
        }
        for instance in self.cache.hosts.values().filter_map(|stored| stored.value.as_deref()) {
            engine.host(&facts(&plan, instance));
        }
        engine
    }

    /// Takes in one event; one that is older than what it knows is dropped.
    pub fn take_in(&mut self, event: &Event) {
        match &event.change {
            Change::Said(said) => {
                if event.revision <= self.cache.said.revision {
                    return;
                }
                let same_epoch = said.rollout.epoch == self.cache.said.value.rollout.epoch;
                self.cache.said = Stored { revision: event.revision, value: (**said).clone() };
                if same_epoch {
                    self.engine.replan(Plan::new(&said.rollout, &said.config));
                } else {
                    self.engine = self.rebuilt();
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
                    self.engine.record(group, record);
                }
            }
            Change::Host(host, instance) => {
                if self.cache.hosts.get(host).is_some_and(|known| event.revision <= known.revision) {
                    return;
                }
                self.cache.hosts.insert(*host, Stored { revision: event.revision, value: instance.clone() });
                match instance {
                    Some(instance) => {
                        let facts = facts(self.engine.plan(), instance);
                        self.engine.host(&facts);
                    }
                    None => self.engine.forget(*host),
                }
            }
        }
    }

    pub fn catch_up(&mut self, store: &Store, watch: usize, count: usize) {
        let from = self.seen[watch];
        let until = store.log[watch].len().min(from + count);
        for event in &store.log[watch][from..until] {
            self.take_in(event);
        }
        self.seen[watch] = until;
    }

    pub fn catch_up_with_all(&mut self, store: &Store) {
        (0..3).for_each(|watch| self.catch_up(store, watch, usize::MAX / 2));
    }

    pub fn is_up_to_date(&self, store: &Store) -> bool {
        (0..3).all(|watch| self.seen[watch] == store.log[watch].len())
    }

    /// Whether it has seen all that was written until then.
    pub fn has_seen_until(&self, store: &Store, then: Timestamp) -> bool {
        (0..3).all(|watch| store.log[watch].get(self.seen[watch]).is_none_or(|event| event.at > then))
    }

    /// Whether something in its cache is of an epoch that it has not heard of yet.
    pub fn is_behind_its_cache(&self) -> bool {
        let epoch = self.cache.said.value.rollout.epoch;
        let hosts = self.cache.hosts.values().filter_map(|stored| stored.value.as_ref()?.upgrade.as_ref());
        self.cache.groups.values().any(|stored| stored.value.epoch > epoch)
            || hosts.into_iter().any(|upgrade| upgrade.epoch > epoch)
    }

    /// Whether all that a decision rests on is still so.
    pub fn may_apply(&self, store: &Store, decision: &Decision) -> bool {
        let (known, stored) = (&self.cache, &store.records);
        let group_unchanged = |group: &usize| {
            let name = self.engine.plan().groups[*group].name.as_str();
            let revision = |records: &Records| records.groups.get(name).map_or(0, |stored| stored.revision);
            revision(known) == revision(stored)
        };
        let host_unchanged = |host: &HostId| {
            let revision = |records: &Records| records.hosts.get(host).map(|stored| stored.revision);
            revision(known) == revision(stored)
        };
        known.said.revision == stored.said.revision
            && group_unchanged(&decision.group)
            && decision.depends_on.iter().all(group_unchanged)
            && decision.marks.iter().all(|(host, _)| host_unchanged(host))
    }

    /// Writes what was decided, by this server's clock.
    pub fn apply(&self, store: &mut Store, decision: &Decision, now: Timestamp) {
        let plan = self.engine.plan();
        let mut hosts = Vec::new();
        for (host, mark) in &decision.marks {
            let mut instance = store.records.hosts[host].value.clone().unwrap();
            let upgrade = marked(plan, decision.group, &decision.record, &instance, *mark, now + self.skew);
            instance.upgrade = Some(Box::new(upgrade.unwrap()));
            hosts.push((*host, Some(instance)));
        }
        let name = plan.groups[decision.group].name.to_string();
        store.put_together(Some((name, decision.record.clone())), hosts, now);
    }
}
