//! `refit-update` on hosts with a booted systemd: real units, real signals, real archives from a real server, and
//! power that goes away.

#![allow(clippy::unwrap_used)]

#[path = "booted/archives.rs"]
mod archives;
#[path = "booted/beside.rs"]
mod beside;
#[path = "booted/cluster.rs"]
mod cluster;
#[path = "booted/failing.rs"]
mod failing;
#[path = "booted/host.rs"]
mod host;
#[path = "booted/package.rs"]
mod package;
#[path = "booted/power.rs"]
mod power;
#[path = "booted/readme.rs"]
mod readme;
#[path = "booted/relay.rs"]
mod relay;
#[path = "booted/switching.rs"]
mod switching;
#[path = "booted/units.rs"]
mod units;
