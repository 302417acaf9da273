//! Examples of the rules of rollouts, one rule at a time, on the simulated cluster of `world`.
#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)]
mod model;
#[allow(dead_code)]
mod world;

#[path = "examples/attempts.rs"]
mod attempts;
#[path = "examples/carried.rs"]
mod carried;
#[path = "examples/clocks.rs"]
mod clocks;
#[path = "examples/cluster.rs"]
mod cluster;
#[path = "examples/halts.rs"]
mod halts;
#[path = "examples/late.rs"]
mod late;
#[path = "examples/members.rs"]
mod members;
#[path = "examples/newcomers.rs"]
mod newcomers;
#[path = "examples/operators.rs"]
mod operators;
#[path = "examples/order.rs"]
mod order;
#[path = "examples/stops.rs"]
mod stops;
#[path = "examples/success.rs"]
mod success;
#[path = "examples/windows.rs"]
mod windows;
