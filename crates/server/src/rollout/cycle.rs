use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_backend::{Error, Expect, Key, Result, Revision, Transaction};
use refit_rollout::{Decision, End, Engine, HostFacts, Mark, Plan, fingerprint};
use refit_types::{HostId, Instance, RolloutRecord};
use tokio::sync::watch;

use super::stored::{Kept, Stored, encoded, group_key, plan_key};
use super::{KNOWS_FOR, MAX_DEATHS, Rollouts, State};
use crate::fleet::{Fleet, Heartbeat, after_heartbeat};

/// How long what happens is collected before it is decided upon: fewer and larger transactions, and a rollout
/// still moves in seconds.
const COLLECT_FOR: Duration = Duration::from_secs(1);
/// How long decisions go on before the store is read again, well below the time for which that is good.
const DECIDE_FOR: Duration = Duration::from_millis(800);
/// How often others may be quicker before this server leaves the field to them until the next turn.
const MAX_CONFLICTS: u32 = 5;
/// How long an arrival waits for its decision before it is stored alone.
const WAIT_FOR: Duration = Duration::from_secs(5);

/// An arrival's record as it is to be stored, and what it was made from.
pub(super) struct Arriving {
    pub(super) instance: Instance,
    pub(super) revision: Revision,
    pub(super) heartbeat: Heartbeat,
}

/// A decision, and what must not have changed since it was made.
pub(super) struct Due {
    pub(super) decision: Decision,
    pub(super) plan: Arc<Plan>,
    pub(super) rests_on: Vec<(Key, Expect)>,
    /// What was known of each host that it marks.
    pub(super) decided_on: Vec<HostFacts>,
}

pub(super) type Overlay = HashMap<HostId, Arriving>;

impl Rollouts {
    /// Reads, decides and stores, until the server stops.
    pub(crate) async fn drive(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut trouble = None;
        loop {
            tokio::select! {
                () = self.turn(&mut trouble) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            tokio::select! {
                () = tokio::time::sleep(COLLECT_FOR.mul_f64(rand::random_range(0.9..1.1))) => {}
                () = self.changed.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    pub(super) async fn turn(&self, trouble: &mut Option<String>) {
        let decided = async {
            self.look().await?;
            self.decide().await
        };
        // Whatever keeps the rollout from going on, what hosts said is stored.
        let (decided, stored) = (decided.await, self.store_the_late().await);
        let error = decided.and(stored).err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|_| *trouble != error) {
            tracing::warn!(error, "the rollout could not go on; it is tried again every second");
        }
        *trouble = error;
    }

    /// Reads what is stored, and begins a new epoch if operators changed what calls for one.
    pub(crate) async fn look(&self) -> Result<()> {
        for _ in 0..=MAX_CONFLICTS {
            let asked = Instant::now();
            let stored = Stored::read(&self.backend).await?;
            self.take_in(stored.clone(), asked);
            let Some(record) = due_epoch(&stored, self.clock()) else { return Ok(()) };
            match self.begin(record, &stored).await {
                Ok(()) | Err(Error::Conflict { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Begins an epoch, if all is still as it was read.
    pub(super) async fn begin(&self, record: RolloutRecord, stored: &Stored) -> Result<()> {
        let mut transaction = Transaction::new();
        for (key, expect) in stored.unchanged()? {
            transaction = transaction.expect(&key, expect);
        }
        transaction = transaction.put(&plan_key()?, encoded(&record)?);
        // Groups that are no more leave nothing behind.
        let settings = stored.settings();
        let present = settings.groups(record.schedule);
        for name in stored.groups.keys().filter(|name| present.iter().all(|group| group.name != **name)) {
            transaction = transaction.delete(&group_key(name)?);
        }
        let message = format!("epoch {} began: {} ({})", record.epoch, record.version, record.schedule);
        let (key, value) = self.events.entry(self.event("rollout.epoch", "rollout", &message))?;
        self.backend.transact(transaction.put(&key, value)).await?;
        tracing::info!(target: "audit", epoch = record.epoch, version = %record.version, schedule = %record.schedule, "a new rollout began");
        Ok(())
    }

    /// Makes what was read known. A host may be known to have started before the window of its group is,
    /// which another server opened: its agent is told then.
    pub(super) fn take_in(&self, stored: Stored, asked: Instant) {
        if self.has_news(stored, asked) {
            self.fleet.wake(|host| self.due_attempt(host).is_some());
        }
    }

    /// Makes what was read known, and the engine anew where that is needed; whether that may concern hosts
    /// that have started.
    fn has_news(&self, stored: Stored, asked: Instant) -> bool {
        let now = self.clock();
        let mut state = self.write();
        let was_certain = state.heard.is_some_and(|heard| asked.duration_since(heard) < KNOWS_FOR);
        let (servers, open) = (state.stored.servers.clone(), state.stored.open_windows());
        if !was_certain {
            // A store that was away may come back from a backup, and count anew from there.
            state.stored = Stored::default();
        }
        state.stored.replace_by(stored);
        let gone: Vec<Box<str>> = servers.difference(&state.stored.servers).cloned().collect();
        let came = state.stored.servers.difference(&servers).next().is_some();
        for server in &gone {
            if state.deaths.len() >= MAX_DEATHS {
                let oldest = state.deaths.iter().min_by_key(|(_, at)| **at).map(|(server, _)| server.clone());
                oldest.map(|server| state.deaths.remove(&server));
            }
            state.deaths.insert(server.clone(), now);
        }
        state.heard = state.heard.max(Some(asked));
        let chosen = state.stored.version.as_ref().map(|kept| kept.value.agent_version.to_string());
        if chosen.as_deref() != state.chosen.as_deref() {
            state.chosen = chosen.map(Into::into);
        }
        let plan = plan_of(&state.stored);
        let same_epoch =
            |engine: &Engine| plan.as_ref().is_some_and(|plan| plan.epoch == engine.plan().epoch);
        let rebuild =
            state.is_outdated || !gone.is_empty() || came || !state.engine.as_ref().is_some_and(same_epoch);
        if !was_certain {
            state.reachable_since = now;
            state.heard_since = Some(asked);
        }
        let opened = state.stored.open_windows() != open;
        match (plan, rebuild) {
            (None, _) => state.engine = None,
            (Some(_), true) => {
                // Nothing is decided from what the engine knew until it knows what was read.
                state.is_outdated = true;
                drop(state);
                self.rebuild();
                return true;
            }
            (Some(plan), false) => {
                let reachable_since = state.reachable_since;
                if let Some(engine) = &mut state.engine {
                    if *engine.plan() != plan {
                        engine.replan(plan);
                    }
                    if !was_certain {
                        engine.reachable_since(reachable_since);
                    }
                }
            }
        }
        state.tell_records();
        opened
    }

    /// Makes the engine from the whole fleet; no host changes meanwhile.
    fn rebuild(&self) {
        self.fleet.each(|hosts, is_loaded| {
            let mut state = self.write();
            let Some(plan) = plan_of(&state.stored).filter(|_| is_loaded) else {
                state.engine = None;
                return;
            };
            let mut engine = Engine::new(plan, state.reachable_since);
            for (name, kept) in &state.stored.groups {
                if let Some(group) = engine.plan().position(name.as_str()) {
                    engine.record(group, &kept.value);
                }
            }
            for instance in hosts {
                let facts = state.facts(engine.plan(), instance);
                engine.host(&facts);
            }
            state.engine = Some(engine);
            state.is_outdated = false;
        });
    }

    /// Decides and stores until nothing is left to decide, or it is time to look again.
    async fn decide(&self) -> Result<()> {
        let started = Instant::now();
        let mut overlay = self.arriving();
        let (mut conflicts, mut batch) = (0, usize::MAX);
        while started.elapsed() < DECIDE_FOR {
            let due = self.due(batch)?;
            if due.is_empty() {
                return Ok(());
            }
            let mut written = Vec::new();
            for due in due {
                let (group, size) = (due.decision.group, due.decision.marks.len());
                if due.decision.depends_on.iter().any(|group| written.contains(group)) {
                    // This server itself has changed what that rests on; it is decided anew.
                    continue;
                }
                match self.carry_out(due, &mut overlay).await {
                    Ok(()) => written.push(group),
                    Err(Error::Conflict { key }) => {
                        conflicts += 1;
                        if conflicts > MAX_CONFLICTS {
                            return Ok(());
                        }
                        self.look_again(&key, &mut overlay).await?;
                    }
                    Err(Error::TooLarge(_)) if size > 1 => batch = size / 2,
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }

    /// What should happen now, each with the revisions of all that it was decided from: what is read while
    /// one is stored must not pass for what the next ones rest on.
    /// Nobody's time is up for as long as no one could have told that it was not: until hosts are back, what
    /// would say so is put off.
    pub(super) fn due(&self, batch: usize) -> Result<Vec<Due>> {
        let mut state = self.write();
        let has_heard_all = state.has_heard_all();
        let State { engine: Some(engine), stored, is_outdated: false, .. } = &mut *state else {
            return Ok(Vec::new());
        };
        let plan = Arc::new(engine.plan().clone());
        let decisions = engine.decide(self.clock(), batch.min(largest_batch(&plan)));
        let is_early = |(_, mark): &(HostId, Mark)| *mark == Mark::Finish(End::TimedOut) && !has_heard_all;
        let decisions = decisions.into_iter().filter(|decision| !decision.marks.iter().any(is_early));
        let with_hosts = decisions.filter_map(|decision| {
            let decided_on = decision.marks.iter().map(|(host, _)| engine.facts(*host));
            decided_on.collect::<Option<Vec<_>>>().map(|decided_on| (decision, decided_on))
        });
        let due = with_hosts.map(|(decision, decided_on)| {
            let mut rests_on = stored.unchanged()?.to_vec();
            for group in decision.depends_on.iter().chain([&decision.group]) {
                rests_on.push(stored.group_unchanged(&plan.groups[*group].name)?);
            }
            Ok(Due { decision, rests_on, decided_on, plan: plan.clone() })
        });
        due.collect()
    }

    /// Learns what others were quicker with.
    async fn look_again(&self, key: &Key, overlay: &mut Overlay) -> Result<()> {
        self.metrics.rollout_conflict();
        match Fleet::host_of(key) {
            Some(host) => {
                self.fleet.refresh(host).await?;
                self.fleet.retell(host);
                overlay.remove(&host);
                overlay.extend(self.arriving().into_iter().filter(|(arriving, _)| *arriving == host));
            }
            None => {
                let pause = Duration::from_millis(rand::random_range(10..100));
                tokio::time::sleep(pause).await;
                self.look().await?;
            }
        }
        Ok(())
    }

    /// Tells the engine of those that have arrived, and how their records will be.
    fn arriving(&self) -> Overlay {
        let now = self.clock();
        let mut overlay = Overlay::new();
        for (host, arrival) in self.arrivals.waiting() {
            let heartbeat = &arrival.heartbeat;
            let known = self.fleet.known(host).filter(|_| !self.is_overtaken(host, &arrival));
            let next = known.and_then(|(known, revision)| {
                Some((after_heartbeat(&known, heartbeat, &self.server, now)?, revision))
            });
            let Some((instance, revision)) = next else {
                self.arrivals.done(host, heartbeat);
                continue;
            };
            let mut state = self.write();
            let facts = state.engine.as_ref().map(|engine| state.facts(engine.plan(), &instance));
            if let (Some(facts), Some(engine)) = (facts, &mut state.engine) {
                engine.host(&facts);
            }
            overlay.insert(host, Arriving { instance, revision, heartbeat: arrival.heartbeat });
        }
        overlay
    }

    /// Stores alone what no decision took along for long.
    async fn store_the_late(&self) -> Result<()> {
        let waiting = self.arrivals.waiting().into_iter();
        for (host, arrival) in waiting.filter(|(_, arrival)| arrival.since.elapsed() > WAIT_FOR) {
            if !self.is_overtaken(host, &arrival) {
                self.fleet.store_heartbeat(host, &arrival.heartbeat).await?;
            }
            self.arrivals.done(host, &arrival.heartbeat);
        }
        Ok(())
    }
}

impl State {
    pub(super) fn tell_records(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        for (name, kept) in &self.stored.groups {
            if let Some(group) = engine.plan().position(name.as_str()) {
                engine.record(group, &kept.value);
            }
        }
    }
}

/// What is to be done, once an epoch has begun for what operators say now.
fn plan_of(stored: &Stored) -> Option<Plan> {
    let (chosen, Kept { value: record, .. }) = (stored.version.as_ref()?, stored.plan.as_ref()?);
    let settings = stored.settings();
    let wanted = fingerprint(&chosen.value.agent_version, chosen.value.agent_version_schedule, &settings);
    (record.fingerprint == wanted).then(|| Plan::new(record, &settings))
}

/// The record of the epoch that should begin, if one should.
fn due_epoch(stored: &Stored, now: Timestamp) -> Option<RolloutRecord> {
    let chosen = &stored.version.as_ref()?.value;
    let settings = stored.settings();
    let (version, schedule) = (chosen.agent_version.clone(), chosen.agent_version_schedule);
    let fingerprint = fingerprint(&version, schedule, &settings);
    let before = stored.plan.as_ref().map(|kept| &kept.value);
    if before.is_some_and(|record| record.fingerprint == fingerprint) {
        return None;
    }
    Some(RolloutRecord {
        epoch: before.map_or(0, |record| record.epoch) + 1,
        fingerprint,
        version,
        schedule,
        began_at: now,
        paused: before.and_then(|record| record.paused),
        unknown: before.map(|record| record.unknown.clone()).unwrap_or_default(),
    })
}

/// Hosts that fit into a transaction beside what it compares: what operators say, the group, those that it
/// requires, and an event.
fn largest_batch(plan: &Plan) -> usize {
    refit_backend::MAX_TRANSACTION_KEYS.saturating_sub(5 + plan.groups.len()).max(1)
}
