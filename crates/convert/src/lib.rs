//! Between the wire and the types of the domain, for whoever stands on either side of a connection: the server that
//! writes, its dashboard and `refitctl` that read. No I/O, no clock.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blocked_by;
mod timestamp;

pub use blocked_by::{blocked_by, blocked_by_from_wire, blocked_by_in_words};
pub use timestamp::{moment, timestamp};
