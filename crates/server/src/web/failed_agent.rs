//! The agent of a version that failed, as the page of a host and the banner of a halt show it.

use refit_convert::failed_agent_from_wire;
use refit_proto::rollouts::v1 as wire;
use refit_types::FailedAgent;

use super::format::Moment;

/// How the agent ended and what it wrote last.
pub(super) struct ShownAgent {
    pub(super) ended: Option<String>,
    pub(super) seen_dead_at: Option<Moment>,
    pub(super) last_lines: Vec<String>,
}

impl From<&FailedAgent> for ShownAgent {
    fn from(agent: &FailedAgent) -> Self {
        let FailedAgent { ended, seen_dead_at, last_lines } = agent;
        Self { ended: ended.clone(), seen_dead_at: seen_dead_at.map(Moment), last_lines: last_lines.clone() }
    }
}

/// A host that a group halted for.
pub(super) struct ShownFailure {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) agent: Option<ShownAgent>,
}

impl From<&wire::HostFailure> for ShownFailure {
    fn from(failure: &wire::HostFailure) -> Self {
        let agent = failure.failed_agent.clone().map(failed_agent_from_wire);
        Self {
            id: failure.host_id.clone(),
            name: failure.hostname.clone(),
            reason: failure.reason.clone(),
            agent: agent.as_ref().map(ShownAgent::from),
        }
    }
}
