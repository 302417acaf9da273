//! Operators' actions on a rollout: run, pause, resume and the removal of hosts. Each is one transaction on the current
//! records, and is in effect on this server when it returns.

use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{Backoff, Error, Expect, Key, Result, Transaction};
use refit_rollout::{HostFacts, Plan, Progress, mark_done, removed, run_group};
use refit_types::{
    FeatureLevel, Group, GroupName, GroupRecord, GroupState, HostId, HostRecord, Resource, RolloutRecord,
};

use super::Rollouts;
use crate::events::Event;
use crate::fleet::{Fleet, HostState, StoreReading, encoded, group_key, plan_key, readable, unreadable};

/// Time limit and first pause of an action that conflicts with other writes.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// What stops immediate versions on servers that do not know a pause of them.
const OFF_INSTEAD: &str =
    ", or stop every host with `refitctl autoupdate update --set-agent-auto-update=off`";

/// Why an operator's action was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorError {
    /// There is no such group.
    #[error("there is no group {group:?} in the {schedule} schedule; expected {known}")]
    NoGroup { group: String, schedule: String, known: String },
    /// Nothing is rolled out.
    #[error("no version has been chosen; `refitctl autoupdate update --set-agent-version=X.Y.Z` chooses one")]
    NoVersion,
    /// Groups do not count.
    #[error("the schedule of this version is immediate: it is for every host, and groups do not count")]
    Immediate,
    /// Updates are off.
    #[error(
        "automatic updates are disabled; `refitctl autoupdate update --set-agent-auto-update=on` enables them"
    )]
    Disabled,
    /// The group need not be declared done.
    #[error("{group} cannot be marked done: {why}")]
    NotStuck { group: String, why: String },
    /// A live server does not support it.
    #[error(
        "this needs feature level {needed} of every server, and {server}: it would let hosts through that this keeps \
         back; upgrade or stop that server first{instead}"
    )]
    Level { needed: FeatureLevel, server: String, instead: &'static str },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The epoch and a group of it, as they are stored now.
struct Found {
    stored: StoreReading,
    group: Group,
    record: GroupRecord,
}

impl Rollouts {
    /// Opens a window of a group now, and lets hosts that failed or timed out start again.
    pub(crate) async fn run_group(&self, name: &str, by: &str) -> Result<(), OperatorError> {
        let message = format!("{by} ran {name} by hand");
        self.change_group(name, by, "group.run", &message, |found, now| {
            match found.stored.snapshot.settings().agent_auto_update.enabled {
                true => Ok(run_group(&found.group, &found.record, now)),
                false => Err(OperatorError::Disabled),
            }
        })
        .await
    }

    /// Declares a group done in which nobody could be upgraded, so that groups that require it go on.
    pub(crate) async fn mark_done(&self, name: &str, by: &str) -> Result<(), OperatorError> {
        self.sync_from_store().await?;
        let message = format!("{by} marked {name} as done although nobody was upgraded");
        self.change_group(name, by, "group.marked_done", &message, |found, now| {
            let view = self.fleet.view();
            let rollout = view.rollout.as_ref().ok_or(OperatorError::NoVersion)?;
            let position = rollout.plan().position(name).ok_or(OperatorError::NoVersion)?;
            match not_stuck(&found.record, rollout.progress(position)) {
                Some(why) => Err(OperatorError::NotStuck { group: name.into(), why }),
                None => Ok(mark_done(&found.record, by, now)),
            }
        })
        .await
    }

    /// Pauses or resumes a group, or the whole rollout.
    pub(crate) async fn set_paused(
        &self,
        name: Option<&str>,
        paused: bool,
        by: &str,
    ) -> Result<(), OperatorError> {
        let (kind, did) = if paused { ("rollout.paused", "paused") } else { ("rollout.resumed", "resumed") };
        match name {
            Some(name) => {
                let message = format!("{by} {did} {name}");
                self.change_group(name, by, kind, &message, |found, now| {
                    let since = found.record.paused.unwrap_or(now);
                    Ok(GroupRecord { paused: paused.then_some(since), ..found.record.clone() })
                })
                .await
            }
            None => self.set_plan_paused(paused, by, kind, &format!("{by} {did} the rollout")).await,
        }
    }

    async fn set_plan_paused(
        &self,
        paused: bool,
        by: &str,
        kind: &str,
        message: &str,
    ) -> Result<(), OperatorError> {
        self.store(|stored| {
            let (Some(plan), Some(revision)) =
                (stored.snapshot.rollout(), stored.snapshot.plan.as_ref().map(|plan| plan.revision))
            else {
                return Err(OperatorError::NoVersion);
            };
            let level = stored.snapshot.needed_level(paused);
            let needs_more = level > plan.level;
            if let Some(server) = stored.snapshot.server_below(level).filter(|_| needs_more) {
                return Err(OperatorError::Level { needed: level, server, instead: OFF_INSTEAD });
            }
            let since = plan.paused.unwrap_or_else(|| self.fleet.clock());
            let record = RolloutRecord { paused: paused.then_some(since), level, ..plan.clone() };
            let event = Event { actor: by.into(), ..self.event(kind, "rollout", message) };
            let (key, value) = self.events.entry(event)?;
            let transaction = Transaction::new().expect_revision(&plan_key()?, revision);
            Ok(transaction.put(&plan_key()?, encoded(&record)?).put(&key, value))
        })
        .await
    }

    async fn change_group(
        &self,
        name: &str,
        by: &str,
        kind: &str,
        message: &str,
        change: impl Fn(&Found, Timestamp) -> Result<GroupRecord, OperatorError>,
    ) -> Result<(), OperatorError> {
        self.store(|stored| {
            let found = find_group(stored, name)?;
            let record = change(&found, self.fleet.clock())?;
            let event = Event { actor: by.into(), ..self.event(kind, &format!("group/{name}"), message) };
            let (event, told) = self.events.entry(event)?;
            let (key, expect) = found.stored.group_unchanged(&found.group.name)?;
            let plan = found.stored.snapshot.plan.as_ref().map(|plan| plan.revision);
            let transaction = Transaction::new()
                .expect(&plan_key()?, plan.map_or(Expect::Absent, Expect::Revision))
                .expect(&key, expect);
            Ok(transaction.put(&key, encoded(&record)?).put(&event, told))
        })
        .await
    }

    /// Refuses what a live server does not support, by the level that it needs.
    pub(crate) async fn require_level(&self, needed: FeatureLevel) -> Result<(), OperatorError> {
        if needed.is_none() {
            return Ok(());
        }
        match self.read_store().await?.snapshot.server_below(needed) {
            Some(server) => Err(OperatorError::Level { needed, server, instead: "" }),
            None => Ok(()),
        }
    }

    /// The level that a document needs of every server, while the rollout is paused or is not.
    pub(crate) fn level_of(&self, resource: &Resource, is_paused: bool) -> FeatureLevel {
        let needed = (self.features.needed)(resource);
        match resource {
            Resource::AutoupdateVersion(version) if is_paused => {
                needed.max((self.features.needed_while_paused)(version))
            }
            _ => needed,
        }
    }

    /// Reads what an operator has just stored, and decides again.
    pub(crate) async fn operator_changed(&self) -> Result<()> {
        self.read_for_operator(true).await
    }

    /// Commits the transaction that `make` builds from the current records, and builds it again on conflict.
    async fn store(
        &self,
        make: impl Fn(&StoreReading) -> Result<Transaction, OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let stored = self.read_store().await?;
            if self.begin_if_due(&stored).await? {
                continue;
            }
            match self.backend.transact(make(&stored)?).await {
                Err(Error::Conflict { .. }) if backoff.pause().await => {}
                other => {
                    other?;
                    return Ok(self.operator_changed().await?);
                }
            }
        }
    }

    /// Removes a host, also from the counts of its group. Returns whether it existed.
    pub(crate) async fn remove(&self, host: HostId, by: &str) -> Result<bool> {
        let event =
            || Event::new("node.removed", by, format!("node/{host}"), "removed a host from the fleet");
        self.remove_if(host, |_| true, event).await
    }

    /// Removes a host if `holds` accepts its stored record, and stores the event with it. Returns whether it did. Works
    /// from the store alone, because counts must be right even while no version is chosen or the fleet is not loaded.
    pub(super) async fn remove_if(
        &self,
        host: HostId,
        holds: impl Fn(&HostRecord) -> bool,
        event: impl Fn() -> Event,
    ) -> Result<bool> {
        let mut backoff = Backoff::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let stored = self.read_store().await?;
            let known = match self.fleet.stored(host).await? {
                HostState::Known(known) if holds(&known.value) => known,
                HostState::Unreadable(why) => return Err(unreadable(&why.value.key)),
                _ => return Ok(false),
            };
            let mut transaction = Transaction::new();
            if let Some(upgrade) = &known.value.upgrade {
                let (key, expect, record) = without(&stored, &upgrade.group_name, &known.value)?;
                transaction = transaction.expect(&key, expect);
                if let Some(record) = record {
                    transaction = transaction.put(&key, record);
                }
            }
            let key = Fleet::key(host)?;
            let transaction = transaction.expect_revision(&key, known.revision).delete(&key);
            let transaction = transaction.put_all(&[self.events.entry(event())?]);
            match self.backend.transact(transaction).await {
                Ok(revision) => {
                    self.fleet.tell_host(host, HostState::Removed(revision)).await?;
                    return Ok(true);
                }
                Err(Error::Conflict { .. }) if backoff.pause().await => {}
                Err(other) => return Err(other),
            }
        }
    }
}

/// Why a group is not to be declared done; none if nobody in it can be upgraded.
fn not_stuck(record: &GroupRecord, progress: Progress) -> Option<String> {
    let hosts = |count: u32| if count == 1 { "1 host".to_owned() } else { format!("{count} hosts") };
    let waits = progress.ready + progress.newcomers;
    Some(match record.state {
        GroupState::Succeeded => "it has succeeded".into(),
        GroupState::Halted(_) => {
            "it halted; fix the cause and run it with `refitctl autoupdate run`, or choose another version"
                .into()
        }
        _ if record.in_flight > 0 => format!("{} in flight; wait until they finish", hosts(record.in_flight)),
        _ if record.upgraded > 0 => {
            let upgraded = hosts(record.upgraded);
            format!("{upgraded} upgraded; it succeeds by itself once the others finish")
        }
        _ if waits > 0 => format!("{} can be upgraded when its window is open", hosts(waits)),
        _ => return None,
    })
}

fn find_group(stored: &StoreReading, name: &str) -> Result<Found, OperatorError> {
    let plan = stored.snapshot.rollout().ok_or(OperatorError::NoVersion)?;
    let settings = stored.snapshot.settings();
    let groups = settings.groups(plan.schedule);
    if plan.schedule == refit_types::Schedule::Immediate {
        return Err(OperatorError::Immediate);
    }
    let Some(group) = groups.iter().find(|group| group.name.as_str() == name) else {
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        return Err(OperatorError::NoGroup {
            group: name.chars().take(80).collect(),
            schedule: plan.schedule.to_string(),
            known: if names.is_empty() { "none: it has no groups".into() } else { names.join(", ") },
        });
    };
    let record = stored.group_in(&group.name, plan);
    let record = match record {
        Ok(record) => record,
        Err(_) => return Err(unreadable(group_key(&group.name)?.as_str()).into()),
    };
    Ok(Found { group: group.clone(), record, stored: stored.clone() })
}

/// The record of a group without one of its members, and the condition that it was made from.
fn without(
    stored: &StoreReading,
    name: &GroupName,
    host_record: &HostRecord,
) -> Result<(Key, Expect, Option<Vec<u8>>)> {
    let (key, expect) = stored.group_unchanged(name)?;
    let Some(plan) = readable(&stored.snapshot.plan) else { return Ok((key, expect, None)) };
    let plan = Plan::new(plan, Default::default(), &stored.snapshot.settings());
    let facts = HostFacts::of(&plan, host_record, None);
    let is_counted = facts.member || facts.newcomer;
    let record = match stored.groups.get(name).filter(|_| is_counted).map(|group| &group.value) {
        Some(Ok(record)) => Some(encoded(&removed(record, &facts))?),
        Some(Err(_)) => return Err(unreadable(key.as_str())),
        None => None,
    };
    Ok((key, expect, record))
}
