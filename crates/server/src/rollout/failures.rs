//! Why hosts failed, for the status: the agent's end and last lines as its updater reported them, and for a halted group
//! one of the hosts that it halted for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use refit_proto::rollouts::v1 as wire;
use refit_rollout::{HostFacts, Plan, RolloutView};
use refit_types::{FailedAgent, GroupRecord, GroupState, HaltCause, HostId, HostRecord};

use super::HostStatus;
use super::status::reason;
use crate::fleet::FleetView;
use crate::rpc::timestamp;

/// Lines of an agent that are passed on. Updaters send fewer; a host may send anything.
const MAX_LINES: usize = 20;
const MAX_LINE_CHARS: usize = 500;

/// The host that was last shown for each halted group, so that a fleet is searched once for each halt.
#[derive(Debug, Default)]
pub(super) struct KnownFailures(Mutex<BTreeMap<String, HostId>>);

impl KnownFailures {
    /// A host that the group halted for.
    pub(super) fn of(
        &self,
        view: &FleetView,
        rollout: &RolloutView,
        position: usize,
        record: &GroupRecord,
    ) -> Option<wire::HostFailure> {
        let GroupState::Halted(halt) = &record.state else { return None };
        let wanted = match halt.cause {
            HaltCause::Failed => HostStatus::Failed,
            HaltCause::TimedOut => HostStatus::TimedOut,
        };
        let name = rollout.plan().groups.get(position)?.name.to_string();
        let found = |host_record: &HostRecord| {
            let facts = rollout.facts(host_record.host_id).filter(|facts| facts.group == Some(position))?;
            (HostStatus::of(&facts, record) == wanted).then_some(facts)
        };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        let known = known.and_then(|host| view.hosts.get(host)).filter(|known| found(&known.value).is_some());
        let known = known.or_else(|| {
            view.hosts.iter_after(None).map(|(_, known)| known).find(|known| found(&known.value).is_some())
        })?;
        let host_record = &known.value;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, host_record.host_id);
        let facts = found(host_record)?;
        Some(wire::HostFailure {
            host_id: host_record.host_id.to_string(),
            hostname: host_record.hostname.to_string(),
            reason: reason(view, rollout.plan(), host_record, &facts, wanted),
            failed_agent: failed_agent(rollout.plan(), host_record),
        })
    }
}

/// What is known of the agent of a host's failed attempt.
pub(super) fn failed_agent(plan: &Plan, host_record: &HostRecord) -> Option<wire::FailedAgent> {
    let FailedAgent { ended, seen_dead_at, last_lines } = HostFacts::failed_agent(plan, host_record)?;
    let skipped = last_lines.len().saturating_sub(MAX_LINES);
    let lines = last_lines.iter().skip(skipped).map(|line| line.chars().take(MAX_LINE_CHARS).collect());
    Some(wire::FailedAgent {
        ended: ended.clone().unwrap_or_default(),
        seen_dead_at: seen_dead_at.map(timestamp),
        last_lines: lines.collect(),
    })
}
