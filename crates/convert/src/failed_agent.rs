//! The agent of a version that failed, read from the wire.

use refit_proto::rollouts::v1 as wire;
use refit_types::FailedAgent;

use crate::moment;

/// What a response says of an agent that failed.
pub fn failed_agent_from_wire(agent: wire::FailedAgent) -> FailedAgent {
    let wire::FailedAgent { ended, seen_dead_at, last_lines } = agent;
    let ended = Some(ended).filter(|ended| !ended.is_empty());
    FailedAgent { ended, seen_dead_at: moment(seen_dead_at), last_lines }
}
