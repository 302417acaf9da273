//! The control plane: wires the store, the migrations and the authority to one TLS port for everyone
//! and one plain, local port for health and metrics.

mod access;
mod artifacts;
mod authorities;
mod config;
mod connection;
mod diag;
mod dispatch;
mod error;
mod events;
mod features;
mod find;
mod fleet;
mod health;
mod http_routes;
mod identity;
mod issued_identities;
mod limiter;
mod listener;
mod metrics;
mod public_http;
mod release;
mod rollout;
mod rotation;
mod rpc;
mod server;
mod server_registry;
mod web;

pub use access::{ROWS, Row, Rule};
pub use config::{Config, Settings};
pub use error::StartError;
pub use features::Features;
pub use http_routes::{Limit, ROUTES, Route, Who};
pub use release::Release;
pub use server::Server;
