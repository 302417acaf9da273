//! The dashboard over real HTTPS, by a scripted HTTP client.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "find/client.rs"]
mod client;
mod cluster;
#[path = "rollout/world.rs"]
mod world;

#[path = "web/actions.rs"]
mod actions;
#[path = "web/browser.rs"]
mod browser;
#[path = "web/live_updates.rs"]
mod live_updates;
#[path = "web/pages.rs"]
mod pages;
#[path = "web/signing_in.rs"]
mod signing_in;
