//! Joining and staying in a cluster, with real server and agent processes.

#![allow(clippy::unwrap_used, dead_code)]

mod host;

#[path = "join/agent.rs"]
mod agent;
#[path = "join/away.rs"]
mod away;
#[path = "join/heartbeats.rs"]
mod heartbeats;
#[path = "join/joins.rs"]
mod joins;
#[path = "join/refusals.rs"]
mod refusals;
#[path = "join/renewal.rs"]
mod renewal;
#[path = "join/secrets.rs"]
mod secrets;
#[path = "join/strangers.rs"]
mod strangers;
