//! The dashboard over real HTTPS, by a scripted HTTP client.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "find/client.rs"]
mod client;
mod cluster;
#[path = "rollout/world.rs"]
mod world;

#[path = "web/acting.rs"]
mod acting;
#[path = "web/browser.rs"]
mod browser;
#[path = "web/moving.rs"]
mod moving;
#[path = "web/reading.rs"]
mod reading;
#[path = "web/signing_in.rs"]
mod signing_in;
