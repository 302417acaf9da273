//! The program as people and scripts use it: real processes, pasted lines, exit codes.

#![allow(clippy::unwrap_used)]

mod host;

#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/identities.rs"]
mod identities;
#[path = "cli/resources.rs"]
mod resources;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/serving.rs"]
mod serving;
#[path = "cli/settings.rs"]
mod settings;
