//! The program as people and scripts use it: real processes, pasted lines, exit codes.

#![allow(clippy::unwrap_used)]

mod host;

#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/edit.rs"]
mod edit;
#[path = "cli/events.rs"]
mod events;
#[path = "cli/following.rs"]
mod following;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/identities.rs"]
mod identities;
#[path = "cli/planning.rs"]
mod planning;
#[path = "cli/resources.rs"]
mod resources;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/serving.rs"]
mod serving;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/versions.rs"]
mod versions;
#[path = "cli/watching.rs"]
mod watching;
#[path = "cli/web.rs"]
mod web;
