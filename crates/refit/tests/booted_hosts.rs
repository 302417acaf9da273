//! `refit-update` on hosts with a booted systemd: real units, real signals, real archives from a real server, and
//! power that goes away.

#![allow(clippy::unwrap_used)]

#[path = "booted_hosts/archives.rs"]
mod archives;
#[path = "booted_hosts/beside.rs"]
mod beside;
#[path = "booted_hosts/cluster.rs"]
mod cluster;
#[path = "booted_hosts/failures.rs"]
mod failures;
#[path = "booted_hosts/host.rs"]
mod host;
#[path = "booted_hosts/package.rs"]
mod package;
#[path = "booted_hosts/power.rs"]
mod power;
#[path = "booted_hosts/races.rs"]
mod races;
#[path = "booted_hosts/readme.rs"]
mod readme;
#[path = "booted_hosts/relay.rs"]
mod relay;
#[path = "booted_hosts/switches.rs"]
mod switches;
#[path = "booted_hosts/units.rs"]
mod units;
