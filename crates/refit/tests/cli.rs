//! The program as people and scripts use it: real processes, pasted lines, exit codes.

#![allow(clippy::unwrap_used)]

mod host;

#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/edit.rs"]
mod edit;
#[path = "cli/event_stream.rs"]
mod event_stream;
#[path = "cli/events.rs"]
mod events;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/identities.rs"]
mod identities;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/resources.rs"]
mod resources;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/server.rs"]
mod server;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/versions.rs"]
mod versions;
#[path = "cli/warnings.rs"]
mod warnings;
#[path = "cli/watch.rs"]
mod watch;
#[path = "cli/web.rs"]
mod web;
