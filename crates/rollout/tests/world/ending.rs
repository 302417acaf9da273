//! The end of every random scenario: once nothing is in the way any more, the rollout must succeed.

use jiff::SignedDuration;

use super::World;
use super::invariants::{ENDS, Held, hold};
use crate::model::after;

impl World {
    /// From here on nobody fails, everyone is there, and operators let it run: it must come to an end.
    pub fn ends(&mut self) -> Held {
        for server in &mut self.servers {
            server.skew = SignedDuration::ZERO;
        }
        self.everyone_returns();
        self.settle()?;
        self.check()?;
        self.updaters_are_at_rest();
        self.operators_let_it_run()?;
        self.hosts_go(u16::MAX);
        self.settle_with_hosts()?;
        self.operators_mark_what_is_stuck();
        self.settle_with_hosts()?;
        let unhappy = |world: &Self| -> u32 {
            let groups = world.settings().groups().iter();
            let records = groups.map(|group| world.store.records.group(group.name.as_str()));
            records.map(|record| record.failed + record.timed_out).sum()
        };
        let (began, unhappy_before) = (self.now, unhappy(self));
        let days = 8 * (self.settings().groups().len() as i64 + 2);
        let mut events = 0;
        while !self.has_succeeded() {
            let waking = self.servers.iter().filter_map(|server| server.engine.wake_at(self.now)).min();
            let working = self.next_arrival();
            let next = waking.into_iter().chain(working).min();
            hold!(ENDS, next.is_some(), "nobody wants to be woken");
            let next = next.unwrap_or(self.now);
            hold!(ENDS, next > self.now || events == 0, "woken for nothing at {next}");
            self.now = next.max(self.now);
            hold!(ENDS, self.now < after(began, days * 86_400), "not done: {:?}", self.states());
            events += 1;
            hold!(ENDS, events < 20_000, "not done after {events} events: {:?}", self.states());
            self.hosts_arrive();
            self.settle_with_hosts()?;
            self.operators_mark_what_is_stuck();
            self.settle_with_hosts()?;
            self.check()?;
        }
        hold!(ENDS, unhappy(self) <= unhappy_before, "hosts failed: {:?}", self.states());
        Ok(())
    }

    fn settle_with_hosts(&mut self) -> Held {
        self.settle()?;
        self.hosts_acknowledge();
        self.settle()
    }

    fn has_succeeded(&self) -> bool {
        let mut groups = self.settings().groups().iter();
        groups.all(|group| {
            self.store.records.group(group.name.as_str()).state == refit_types::GroupState::Succeeded
        })
    }

    fn states(&self) -> Vec<(String, refit_types::GroupRecord, Option<refit_rollout::BlockedBy>)> {
        let engine = &self.servers[0].engine;
        let groups = self.settings().groups().iter().enumerate();
        groups
            .map(|(n, group)| {
                let record = self.store.records.group(group.name.as_str());
                (group.name.to_string(), record, engine.view().blocked_by(n, self.now))
            })
            .collect()
    }
}
