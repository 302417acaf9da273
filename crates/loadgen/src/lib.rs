//! Many agents in one process, speaking the real protocol: each has a key, joins with a token, holds a
//! TLS connection of its own and sends heartbeats. For benchmarks, and to see what a fleet does to a
//! control plane.

mod agent;
mod find;
mod fleet;
mod simulated_host;

pub use agent::{AgentError, Joined, SimulatedAgent};
pub use find::FindAnswer;
pub use fleet::{Counts, FleetOptions, SimulatedFleet};
pub use simulated_host::{Conduct, HostOptions, SimulatedHost, UpdateObserver};
