//! Rollouts as operators, updaters and agents see them, by servers that share a store.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;

#[path = "rollout/agreement.rs"]
mod agreement;
#[path = "rollout/economy.rs"]
mod economy;
#[path = "rollout/gates.rs"]
mod gates;
#[path = "rollout/hints.rs"]
mod hints;
#[path = "rollout/history.rs"]
mod history;
#[path = "rollout/levels.rs"]
mod levels;
#[path = "rollout/new_hosts.rs"]
mod new_hosts;
#[path = "rollout/operators.rs"]
mod operators;
#[path = "rollout/outage.rs"]
mod outage;
#[path = "rollout/pause.rs"]
mod pause;
#[path = "rollout/proof.rs"]
mod proof;
#[path = "rollout/published.rs"]
mod published;
#[path = "rollout/restart.rs"]
mod restart;
#[path = "rollout/world.rs"]
mod world;
