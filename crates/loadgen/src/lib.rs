//! Many agents in one process, speaking the real protocol: each has a key, joins with a token, holds a
//! TLS connection of its own and sends heartbeats. For benchmarks, and to see what a fleet does to a
//! control plane.

mod agent;
mod conduct;
mod find;
mod fleet;

pub use agent::{AgentError, Joined, SimulatedAgent};
pub use conduct::{Conduct, FollowingHost, HostOptions, Witness};
pub use find::FindAnswer;
pub use fleet::{Counts, FleetOptions, SimulatedFleet};
