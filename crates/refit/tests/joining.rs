//! Joining and staying in a cluster, with real server and agent processes.

#![allow(clippy::unwrap_used, dead_code)]

mod host;

#[path = "joining/agent.rs"]
mod agent;
#[path = "joining/away.rs"]
mod away;
#[path = "joining/beats.rs"]
mod beats;
#[path = "joining/joins.rs"]
mod joins;
#[path = "joining/refusals.rs"]
mod refusals;
#[path = "joining/renewal.rs"]
mod renewal;
#[path = "joining/secrets.rs"]
mod secrets;
#[path = "joining/strangers.rs"]
mod strangers;
