//! Turns the engine's decisions into transactions. Other tasks commit them, one at a time for each group. Each compares
//! the revisions that the decision was made from, so that a stale decision is refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_backend::{Error, Expect, MAX_TRANSACTION_KEYS, Result, Revision, Transaction};
use refit_rollout::{Decision, HostTransition, InProgress, Plan, PlannedTransition, apply_transition};
use refit_types::{GroupName, GroupRecord, GroupState, HostId, HostRecord};

use super::heartbeats::HostWork;
use super::{BesideMessage, Owner};
use crate::events::{Event, SERVER};
use crate::fleet::store_snapshot::encoded;
use crate::fleet::{group_key, host_records};

/// How long one decision may lead to the next before the next reading of the store: later events are then batched into
/// fewer and larger transactions, and a rollout still moves in seconds.
const DECIDE_FOR: Duration = Duration::from_millis(800);
/// Conflicts with other servers before this one pauses until the next reading of the store.
const MAX_CONFLICTS: u32 = 5;

/// When this server decides next, and what it is committing.
#[derive(Debug)]
pub(super) struct DecisionState {
    is_due: bool,
    /// Whether deferred heartbeats are to be passed to the engine: once for each reading of the store, so that those of
    /// one second share a write.
    takes_arrivals: bool,
    /// Until when one decision leads to the next.
    until: Option<Instant>,
    conflicts: u32,
    /// Hosts of one decision: less after one was too large.
    batch: usize,
    /// Groups whose decisions are being stored.
    in_flight: HashSet<GroupName>,
    /// The last error, so that it is logged once.
    last_error: Option<String>,
}

impl Default for DecisionState {
    fn default() -> Self {
        Self {
            is_due: false,
            takes_arrivals: false,
            until: None,
            conflicts: 0,
            batch: usize::MAX,
            in_flight: HashSet::new(),
            last_error: None,
        }
    }
}

impl DecisionState {
    /// The store was read: it is time to decide.
    pub(super) fn start(&mut self) {
        self.is_due = true;
        self.takes_arrivals = true;
        self.until = Some(Instant::now() + DECIDE_FOR);
        self.conflicts = 0;
        self.batch = usize::MAX;
    }

    /// A pending write has finished: decide again if there is time.
    pub(super) fn resume(&mut self) {
        let in_time = self.until.is_some_and(|until| Instant::now() < until);
        self.is_due |= in_time && self.conflicts <= MAX_CONFLICTS;
    }

    pub(super) fn pause(&self) -> Duration {
        if self.is_due { Duration::ZERO } else { Duration::MAX }
    }
}

/// A decision that is being committed.
#[derive(Debug)]
pub(crate) struct Commit {
    name: GroupName,
    /// Whether another decision follows: hosts that did not fit, or a group that has just been opened, closed or finished.
    leads_on: bool,
    record: GroupRecord,
    hosts: Vec<ChangedHost>,
}

/// A host of a commit, as its record will be.
#[derive(Debug)]
struct ChangedHost {
    host: HostId,
    host_record: Arc<HostRecord>,
    /// Whether its heartbeat is stored with it.
    is_arrival: bool,
}

impl Owner {
    /// Decides if it is due, and begins to commit the decisions.
    pub(super) fn decide(&mut self) {
        if !std::mem::take(&mut self.decision_state.is_due) || !self.is_certain() || self.rebuild.is_some() {
            return;
        }
        if std::mem::take(&mut self.decision_state.takes_arrivals) {
            self.flush_overdue();
            self.tell_deferred();
        }
        let now = self.clock();
        let Some(engine) = &mut self.engine else { return };
        let batch = self.decision_state.batch.min(largest_batch(engine.plan()));
        let plan = Arc::new(engine.plan().clone());
        let (in_flight, busy) = (&self.decision_state.in_flight, &self.busy);
        let is_in_flight =
            |group: usize| plan.groups.get(group).is_some_and(|group| in_flight.contains(&group.name));
        let is_busy = |host: HostId| busy.contains_key(&host);
        let decisions = engine.decide(now, batch, InProgress { group: &is_in_flight, host: &is_busy });
        for decision in decisions {
            let required = decision.depends_on.iter().filter_map(|(group, _)| plan.groups.get(*group));
            // A commit of this server is changing a record that this depends on; it is decided again afterwards.
            let rests_on_own =
                required.into_iter().any(|group| self.decision_state.in_flight.contains(&group.name));
            let is_free = decision.transitions.iter().all(|planned| !self.busy.contains_key(&planned.host));
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

    /// The transaction of a decision: the group's record, its hosts, and an event if the group changes its state. None
    /// if the engine's state of a host is stale.
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
        for PlannedTransition { host, transition, revision } in &decision.transitions {
            let arrival = self.deferred.get(host).and_then(|deferred| deferred.told.as_ref());
            let stored = self.records.hosts.get(*host).filter(|known| known.revision == *revision);
            let Some(known) = stored.map(|known| arrival.unwrap_or(&known.value)) else { return Ok(None) };
            let upgrade = apply_transition(plan, decision.group, &decision.record, known, *transition, now);
            let Some(upgrade) = upgrade else { return Ok(None) };
            let host_record = HostRecord { upgrade: Some(Box::new(upgrade)), ..HostRecord::clone(known) };
            let key = host_records::key(*host)?;
            transaction = transaction.expect_revision(&key, *revision).put(&key, encoded(&host_record)?);
            let is_arrival = arrival.is_some();
            hosts.push(ChangedHost { host: *host, host_record: Arc::new(host_record), is_arrival });
        }
        if let Some(event) = self.transition(plan, &decision) {
            tracing::info!(target: "audit", group = %name, message = event.message, "a group changed its state");
            let (key, value) = self.events.entry(event)?;
            transaction = transaction.put(&key, value);
        }
        let (before, after) = (&decision.before, &decision.record);
        // A host that has settled may start, or may have the version.
        let has_settled =
            decision.transitions.iter().any(|planned| planned.transition == HostTransition::Settle);
        let leads_on = hosts.len() >= self.decision_state.batch.min(largest_batch(plan))
            || after.admitting
            || before.admitting
            || before.state != after.state
            || before.window != after.window
            || has_settled;
        Ok(Some((Commit { name, leads_on, record: decision.record, hosts }, transaction)))
    }

    fn begin_commit(&mut self, commit: Commit, transaction: Transaction) {
        self.decision_state.in_flight.insert(commit.name.clone());
        commit.hosts.iter().for_each(|changed| self.reserve(changed.host));
        let (backend, done) = (self.backend.clone(), self.inbox.beside_sender.clone());
        tokio::spawn(async move {
            let outcome = backend.transact(transaction).await;
            // Sending fails only when the server stops.
            let _ = done.send(BesideMessage::Committed { commit: Box::new(commit), outcome }).await;
        });
    }

    pub(super) fn committed(&mut self, commit: Commit, outcome: Result<Revision>) {
        self.decision_state.in_flight.remove(&commit.name);
        let (size, hosts): (usize, Vec<HostId>) =
            (commit.hosts.len(), commit.hosts.iter().map(|changed| changed.host).collect());
        match outcome {
            Ok(revision) => {
                self.warn(None);
                if commit.leads_on {
                    self.decision_state.resume();
                }
                self.stored(commit, revision);
            }
            Err(Error::Conflict { key }) => {
                self.metrics.rollout_conflict();
                self.decision_state.conflicts += 1;
                match host_records::host_of(&key) {
                    // Another server changed the host: read its record, then decide again.
                    Some(host) => self.add_work(host, HostWork::Refresh),
                    None => self.inbox.poll.notify_one(),
                }
            }
            Err(Error::TooLarge(_)) if size > 1 => {
                self.decision_state.batch = size / 2;
                self.decision_state.resume();
            }
            Err(other) => self.warn(Some(other.to_string())),
        }
        hosts.into_iter().for_each(|host| self.release(host));
    }

    /// Applies what this server has just committed.
    fn stored(&mut self, commit: Commit, revision: Revision) {
        let arrivals = commit.hosts.iter().filter(|changed| changed.is_arrival).count();
        self.metrics.rollout_writes(commit.hosts.len() - arrivals, arrivals);
        self.set_group(commit.name, Some(Ok(commit.record)), revision);
        for changed in commit.hosts {
            self.deferred_stored(changed.host, &changed.host_record);
            self.set_host(changed.host, changed.host_record, revision);
        }
        self.unpublished.is_dirty = true;
    }

    /// Logs an error once, until it changes.
    fn warn(&mut self, last_error: Option<String>) {
        if let Some(error) = last_error.as_ref().filter(|_| self.decision_state.last_error != last_error) {
            tracing::warn!(error, "could not store a decision of the rollout; retrying every second");
        }
        self.decision_state.last_error = last_error;
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

/// Hosts that fit into a transaction besides the other keys: the operators' settings, the group, the groups that it
/// requires, and an event.
fn largest_batch(plan: &Plan) -> usize {
    MAX_TRANSACTION_KEYS.saturating_sub(5 + plan.groups.len()).max(1)
}
