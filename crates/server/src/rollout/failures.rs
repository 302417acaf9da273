//! Why hosts failed, for the status: the agent's end and last lines as its updater reported them, and for a halted group
//! one of the hosts that it halted for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use refit_proto::rollouts::v1 as wire;
use refit_rollout::{HostFacts, Plan, RolloutView};
use refit_types::{FailedAgent, GroupState, HaltCause, HostId, HostRecord};

use super::HostStatus;
use super::status::reason;
use crate::fleet::FleetView;
use crate::rpc::timestamp;

/// Lines of an agent that are passed on. Updaters send fewer; a host may send anything.
const MAX_LINES: usize = 20;
const MAX_LINE_CHARS: usize = 500;
/// How often the fleet is searched for a halted group, until a host is found that says why its agent failed.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

/// The host that is shown for each halted group, so that a status does not search the fleet.
#[derive(Debug, Default)]
pub(super) struct ShownFailures(Mutex<BTreeMap<String, Search>>);

#[derive(Debug, Clone, Copy)]
struct Search {
    at: Instant,
    found: Option<HostId>,
}

impl ShownFailures {
    /// A host that the group halted for; one that tells of its agent, if there is one.
    pub(super) fn of(
        &self,
        view: &FleetView,
        rollout: &RolloutView,
        position: usize,
    ) -> Option<wire::HostFailure> {
        let record = rollout.group_record(position)?;
        let GroupState::Halted(halt) = &record.state else { return None };
        let plan = rollout.plan();
        let status = match halt.cause {
            HaltCause::Failed => HostStatus::Failed,
            HaltCause::TimedOut => HostStatus::TimedOut,
        };
        let facts = |host_record: &HostRecord| {
            let facts = rollout.facts(host_record.host_id).filter(|facts| facts.group == Some(position))?;
            (HostStatus::of(&facts, record) == status).then_some(facts)
        };
        let name = plan.groups.get(position)?.name.to_string();
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        let known = last.and_then(|search| view.hosts.get(search.found?)).map(|known| &known.value);
        let known = known.filter(|host_record| facts(host_record).is_some());
        let is_final = known.is_some_and(|host_record| HostFacts::failed_agent(plan, host_record).is_some());
        let is_fresh = last.is_some_and(|search| search.at.elapsed() < SEARCH_EVERY);
        let shown = if is_final || is_fresh && known.is_some() {
            known
        } else if is_fresh && last.is_some_and(|search| search.found.is_none()) {
            None
        } else {
            let failed = || {
                let records = view.hosts.iter_after(None).map(|(_, known)| &known.value);
                records.filter(|host_record| facts(host_record).is_some())
            };
            let telling = failed().find(|host_record| HostFacts::failed_agent(plan, host_record).is_some());
            let found = telling.or_else(|| failed().next());
            let search = Search { at: Instant::now(), found: found.map(|host_record| host_record.host_id) };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, search);
            found
        }?;
        Some(wire::HostFailure {
            host_id: shown.host_id.to_string(),
            hostname: shown.hostname.to_string(),
            reason: reason(view, plan, shown, &facts(shown)?, status),
            failed_agent: failed_agent(plan, shown),
        })
    }
}

/// What is known of the agent of a host's failed attempt.
pub(super) fn failed_agent(plan: &Plan, host_record: &HostRecord) -> Option<wire::FailedAgent> {
    let FailedAgent { ended, seen_dead_at, last_lines } = HostFacts::failed_agent(plan, host_record)?;
    let skipped = last_lines.len().saturating_sub(MAX_LINES);
    let lines = last_lines.iter().skip(skipped).map(|line| line.chars().take(MAX_LINE_CHARS).collect());
    Some(wire::FailedAgent {
        ended: ended.as_deref().unwrap_or_default().chars().take(MAX_LINE_CHARS).collect(),
        seen_dead_at: seen_dead_at.map(timestamp),
        last_lines: lines.collect(),
    })
}
