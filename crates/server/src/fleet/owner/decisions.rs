//! What the engine decides, as transactions. They are stored beside the owner, one at a time for each group; each
//! compares the revisions that the decision was made from, so that what has changed meanwhile is refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_backend::{Error, Expect, MAX_TRANSACTION_KEYS, Result, Revision, Transaction};
use refit_rollout::{Decision, InProgress, Plan, marked};
use refit_types::{GroupName, GroupRecord, GroupState, HostId, HostRecord};

use super::heartbeats::HostWork;
use super::{BesideMessage, Owner};
use crate::events::{Event, SERVER};
use crate::fleet::store_snapshot::encoded;
use crate::fleet::{group_key, host_records};

/// How long decisions follow one another before the next reading of the store: what happens in between is collected
/// into fewer and larger transactions, and a rollout still moves in seconds.
const DECIDE_FOR: Duration = Duration::from_millis(800);
/// How often others may be quicker before this server leaves the field to them until the store is read again.
const MAX_CONFLICTS: u32 = 5;

/// Where this server stands with its decisions.
#[derive(Debug)]
pub(super) struct Deciding {
    is_due: bool,
    /// Whether the engine is to be told who has arrived: once for each reading of the store, so that those of a second
    /// share a write.
    takes_arrivals: bool,
    /// Until when one decision leads to the next.
    until: Option<Instant>,
    conflicts: u32,
    /// Hosts of one decision: less after one was too large.
    batch: usize,
    /// Groups whose decisions are being stored.
    in_flight: HashSet<GroupName>,
    /// What last went wrong, to be told once.
    trouble: Option<String>,
}

impl Default for Deciding {
    fn default() -> Self {
        Self {
            is_due: false,
            takes_arrivals: false,
            until: None,
            conflicts: 0,
            batch: usize::MAX,
            in_flight: HashSet::new(),
            trouble: None,
        }
    }
}

impl Deciding {
    /// The store was read: it is time to decide.
    pub(super) fn now(&mut self) {
        self.is_due = true;
        self.takes_arrivals = true;
        self.until = Some(Instant::now() + DECIDE_FOR);
        self.conflicts = 0;
        self.batch = usize::MAX;
    }

    /// Something that was waited for is known: what is next?
    pub(super) fn go_on(&mut self) {
        let in_time = self.until.is_some_and(|until| Instant::now() < until);
        self.is_due |= in_time && self.conflicts <= MAX_CONFLICTS;
    }

    pub(super) fn pause(&self) -> Duration {
        if self.is_due { Duration::ZERO } else { Duration::MAX }
    }
}

/// A decision on its way to the store.
#[derive(Debug)]
pub(crate) struct Commit {
    name: GroupName,
    /// Whether there is more to be decided once this is stored: members or hosts that did not fit, or a group that
    /// has just been opened, closed, or ended.
    leads_on: bool,
    record: GroupRecord,
    hosts: Vec<Marked>,
}

/// A host of a commit, as its record will be.
#[derive(Debug)]
struct Marked {
    host: HostId,
    instance: Arc<HostRecord>,
    /// Whether its heartbeat is stored with it.
    is_arrival: bool,
}

impl Owner {
    /// Decides if it is time to, and has the decisions stored.
    pub(super) fn decide(&mut self) {
        if !std::mem::take(&mut self.deciding.is_due) || !self.is_certain() || self.rebuild.is_some() {
            return;
        }
        if std::mem::take(&mut self.deciding.takes_arrivals) {
            self.flush_overdue();
            self.tell_deferred();
        }
        let now = self.clock();
        let Some(engine) = &mut self.engine else { return };
        let batch = self.deciding.batch.min(largest_batch(engine.plan()));
        let plan = Arc::new(engine.plan().clone());
        let (in_flight, busy) = (&self.deciding.in_flight, &self.busy);
        let is_in_flight =
            |group: usize| plan.groups.get(group).is_some_and(|group| in_flight.contains(&group.name));
        let is_busy = |host: HostId| busy.contains_key(&host);
        let decisions = engine.decide(now, batch, InProgress { group: &is_in_flight, host: &is_busy });
        for decision in decisions {
            let required = decision.depends_on.iter().filter_map(|(group, _)| plan.groups.get(*group));
            // This server itself is changing what that rests on; it is decided anew.
            let rests_on_own =
                required.into_iter().any(|group| self.deciding.in_flight.contains(&group.name));
            let is_free = decision.transitions.iter().all(|marked| !self.busy.contains_key(&marked.host));
            if rests_on_own || !is_free {
                continue;
            }
            match self.commit(&plan, decision, now) {
                Ok(Some((commit, transaction))) => self.begin_commit(commit, transaction),
                Ok(None) => {}
                Err(error) => self.warn(Some(error.to_string())),
            }
        }
    }

    /// The transaction of a decision: the group's record, its hosts, and an event if the group enters another state.
    /// Nothing if a host is not as the engine knows it.
    fn commit(
        &self,
        plan: &Plan,
        decision: Decision,
        now: jiff::Timestamp,
    ) -> Result<Option<(Commit, Transaction)>> {
        let mut transaction = Transaction::new();
        for (key, expect) in self.snapshot.unchanged()? {
            transaction = transaction.expect(&key, expect);
        }
        let own = (decision.group, decision.revision);
        for (group, revision) in decision.depends_on.iter().chain([&own]) {
            let expect = revision.map_or(Expect::Absent, Expect::Revision);
            transaction = transaction.expect(&group_key(&plan.groups[*group].name)?, expect);
        }
        let name = plan.groups[decision.group].name.clone();
        transaction = transaction.put(&group_key(&name)?, encoded(&decision.record)?);
        let mut hosts = Vec::with_capacity(decision.transitions.len());
        for refit_rollout::Marked { host, mark, revision } in &decision.transitions {
            let arrival = self.deferred.get(host).and_then(|deferred| deferred.told.as_ref());
            let stored = self.records.hosts.get(*host).filter(|known| known.revision == *revision);
            let Some(known) = stored.map(|known| arrival.unwrap_or(&known.value)) else { return Ok(None) };
            let upgrade = marked(plan, decision.group, &decision.record, known, *mark, now);
            let Some(upgrade) = upgrade else { return Ok(None) };
            let instance = HostRecord { upgrade: Some(Box::new(upgrade)), ..HostRecord::clone(known) };
            let key = host_records::key(*host)?;
            transaction = transaction.expect_revision(&key, *revision).put(&key, encoded(&instance)?);
            let is_arrival = arrival.is_some();
            hosts.push(Marked { host: *host, instance: Arc::new(instance), is_arrival });
        }
        if let Some(event) = self.transition(plan, &decision) {
            tracing::info!(target: "audit", group = %name, message = event.message, "a group changes its state");
            let (key, value) = self.events.entry(event)?;
            transaction = transaction.put(&key, value);
        }
        let (before, after) = (&decision.before, &decision.record);
        let leads_on = hosts.len() >= self.deciding.batch.min(largest_batch(plan))
            || after.admitting
            || before.admitting
            || before.state != after.state
            || before.window != after.window;
        Ok(Some((Commit { name, leads_on, record: decision.record, hosts }, transaction)))
    }

    fn begin_commit(&mut self, commit: Commit, transaction: Transaction) {
        self.deciding.in_flight.insert(commit.name.clone());
        commit.hosts.iter().for_each(|marked| self.reserve(marked.host));
        let (backend, done) = (self.backend.clone(), self.inbox.beside_sender.clone());
        tokio::spawn(async move {
            let outcome = backend.transact(transaction).await;
            // Without an owner the server is stopping.
            let _ = done.send(BesideMessage::Committed { commit: Box::new(commit), outcome }).await;
        });
    }

    pub(super) fn committed(&mut self, commit: Commit, outcome: Result<Revision>) {
        self.deciding.in_flight.remove(&commit.name);
        let (size, hosts): (usize, Vec<HostId>) =
            (commit.hosts.len(), commit.hosts.iter().map(|marked| marked.host).collect());
        match outcome {
            Ok(revision) => {
                self.warn(None);
                if commit.leads_on {
                    self.deciding.go_on();
                }
                self.stored(commit, revision);
            }
            Err(Error::Conflict { key }) => {
                self.metrics.rollout_conflict();
                self.deciding.conflicts += 1;
                match host_records::host_of(&key) {
                    // What another server made of it is read, and then decided anew.
                    Some(host) => self.add_work(host, HostWork::Refresh),
                    None => self.inbox.poll.notify_one(),
                }
            }
            Err(Error::TooLarge(_)) if size > 1 => {
                self.deciding.batch = size / 2;
                self.deciding.go_on();
            }
            Err(other) => self.warn(Some(other.to_string())),
        }
        hosts.into_iter().for_each(|host| self.release(host));
    }

    /// Takes in what this server has just stored.
    fn stored(&mut self, commit: Commit, revision: Revision) {
        let arrivals = commit.hosts.iter().filter(|marked| marked.is_arrival).count();
        self.metrics.rollout_writes(commit.hosts.len() - arrivals, arrivals);
        self.set_group(commit.name, Some(Ok(commit.record)), revision);
        for marked in commit.hosts {
            self.deferred_stored(marked.host, &marked.instance);
            self.set_host(marked.host, marked.instance, revision);
        }
        self.unpublished.is_dirty = true;
    }

    /// Tells once what keeps the rollout from going on.
    fn warn(&mut self, trouble: Option<String>) {
        if let Some(error) = trouble.as_ref().filter(|_| self.deciding.trouble != trouble) {
            tracing::warn!(error, "the rollout could not go on; it is tried again every second");
        }
        self.deciding.trouble = trouble;
    }

    fn transition(&self, plan: &Plan, decision: &Decision) -> Option<Event> {
        let (state, record) = (&decision.record.state, &decision.record);
        if *state == decision.before.state {
            return None;
        }
        let (name, version) = (&plan.groups[decision.group].name, &plan.version);
        let message = match state {
            GroupState::Active => format!("{name} is active: hosts go to {version}"),
            GroupState::Scheduled => {
                format!("the window of {name} closed: {} of {} upgraded", record.upgraded, record.members)
            }
            GroupState::Succeeded => {
                format!("{name} succeeded: {} of {} upgraded to {version}", record.upgraded, record.members)
            }
            GroupState::Halted(halt) => format!("{name} halted: {halt}"),
        };
        let actor = format!("{SERVER} {}", self.server);
        Some(Event::new(&format!("group.{}", state.as_str()), actor, format!("group/{name}"), message))
    }
}

/// Hosts that fit into a transaction beside what it compares: what operators say, the group, those that it
/// requires, and an event.
fn largest_batch(plan: &Plan) -> usize {
    MAX_TRANSACTION_KEYS.saturating_sub(5 + plan.groups.len()).max(1)
}
