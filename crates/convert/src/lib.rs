//! Converts between wire messages and domain types, for the server, its dashboard and `refitctl`. No I/O, no clock.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blocked_by;
mod failed_agent;
mod host_limit;
mod standing;
mod timestamp;

pub use blocked_by::{blocked_by, blocked_by_from_wire, blocked_by_in_words};
pub use failed_agent::failed_agent_from_wire;
pub use standing::standing;
pub use timestamp::{moment, timestamp};
