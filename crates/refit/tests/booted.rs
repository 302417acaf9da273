//! `refit-update` on hosts with a booted systemd: real units, real signals, real archives from a real server, and
//! power that goes away.

#![allow(clippy::unwrap_used)]

#[path = "booted/archives.rs"]
mod archives;
#[path = "booted/cluster.rs"]
mod cluster;
#[path = "booted/failing.rs"]
mod failing;
#[path = "booted/host.rs"]
mod host;
#[path = "booted/power.rs"]
mod power;
#[path = "booted/switching.rs"]
mod switching;
#[path = "booted/units.rs"]
mod units;
