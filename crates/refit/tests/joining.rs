//! Hosts that become part of a cluster and stay it: real servers, real agents, pasted lines.

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
