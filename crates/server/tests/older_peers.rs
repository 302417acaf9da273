//! Agents and `refitctl` of released versions against the present server: what fleets have while they are upgraded.
//! They are played with the wire types that those releases were built with. What peers of versions to come may send
//! is tried as well.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;
#[path = "rollout/world.rs"]
mod world;

#[path = "older_peers/newer.rs"]
mod newer;
#[path = "older_peers/old_agent.rs"]
mod old_agent;
#[path = "older_peers/old_ctl.rs"]
mod old_ctl;
#[path = "older_peers/rollout.rs"]
mod rollout;
#[path = "older_peers/rotation.rs"]
mod rotation;
