//! `refitctl`: what an operator asks of a cluster, and how the answers look.

mod auth;
mod autoupdate;
pub(crate) mod connect;
mod consent;
mod edit;
mod events;
mod migrations;
mod nodes;
mod resources;
mod rotate;
mod status;
mod tokens;
mod web;

use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use jiff::{Span, SpanRelativeTo};
use refit_convert::moment as timestamp;

use crate::exit::Failure;
use crate::invocation::Invocation;
use crate::output::{self, Format};
use crate::version;

/// Administers a Refit cluster.
#[derive(Debug, Parser)]
#[command(name = "refitctl", version = crate::stamp::text(), max_term_width = 100)]
pub(crate) struct Program {
    #[command(flatten)]
    pub(crate) args: Args,
}

/// Administers a cluster. On the host of a control plane it finds the way by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl status\n  \
    refitctl --identity alice.json --server refit.example.com:3080 get channels")]
pub(crate) struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What all commands take.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    #[command(flatten)]
    pub(crate) target: connect::Target,
    /// How to show the answer
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the cluster at a glance
    #[command(after_help = "Example:\n  refitctl status --format json")]
    Status,
    /// Show resources
    Get(resources::Get),
    /// Create resources from a file of YAML or JSON documents
    Create(resources::Create),
    /// Change a resource in an editor
    Edit(edit::Edit),
    /// Delete a resource
    Rm(resources::Rm),
    /// Bring the fleet to a version, in groups and windows
    #[command(
        after_help = "Examples:\n  refitctl autoupdate update --set-agent-version=15.1.1\n  refitctl autoupdate status"
    )]
    Autoupdate {
        #[command(subcommand)]
        command: autoupdate::Command,
    },
    /// Sign identities and rotate the cluster's authorities
    #[command(after_help = "Example:\n  refitctl auth sign --user alice --roles viewer --out alice.json")]
    Auth {
        #[command(subcommand)]
        command: auth::Command,
    },
    /// Add, show and remove the hosts of the fleet
    #[command(after_help = "Examples:\n  refitctl nodes add --roles node --ttl 10m\n  refitctl nodes ls")]
    Nodes {
        #[command(subcommand)]
        command: nodes::Command,
    },
    /// Show and delete the tokens by which hosts join
    #[command(after_help = "Example:\n  refitctl tokens ls")]
    Tokens {
        #[command(subcommand)]
        command: tokens::Command,
    },
    /// Show the audit log of the cluster
    #[command(after_help = "Example:\n  refitctl events ls --since 1h")]
    Events {
        #[command(subcommand)]
        command: events::Command,
    },
    /// Sign in to the dashboard
    #[command(after_help = "Example:\n  refitctl web login")]
    Web {
        #[command(subcommand)]
        command: web::Command,
    },
    /// Show and apply migrations of stored data
    #[command(after_help = "Examples:\n  refitctl migrations ls\n  refitctl migrations apply")]
    Migrations {
        #[command(subcommand)]
        command: migrations::Command,
    },
    /// Show the version of this program
    #[command(after_help = "Example:\n  refitctl version --format json")]
    Version,
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  refitctl completions bash > /etc/bash_completion.d/refitctl")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

pub(crate) fn run(args: Args, invocation: &Invocation) -> Result<(), Failure> {
    let Args { global, command } = args;
    crate::block_on(async {
        match command {
            Command::Status => status::run(&global).await,
            Command::Get(get) => get.run(&global).await,
            Command::Create(create) => create.run(&global).await,
            Command::Edit(edit) => edit.run(&global).await,
            Command::Rm(rm) => rm.run(&global).await,
            Command::Autoupdate { command } => command.run(&global).await,
            Command::Auth { command } => command.run(&global, invocation).await,
            Command::Nodes { command } => command.run(&global).await,
            Command::Tokens { command } => command.run(&global).await,
            Command::Events { command } => command.run(&global).await,
            Command::Web { command } => command.run(&global).await,
            Command::Migrations { command } => command.run(&global).await,
            Command::Version => version::show("refitctl", global.format),
            Command::Completions { shell } => output::completions(shell, Program::command()),
        }
    })
}

/// `8h`, `90m`, `7d`: a day is 24 hours.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text:?} is not a time; expected something like 30m, 8h or 7d");
    let span: Span = text.parse().map_err(|_| expected())?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| expected())?;
    Duration::try_from(length).map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_as_people_write_them() {
        let seconds = |text: &str| duration(text).map(|duration| duration.as_secs());
        assert_eq!((seconds("8h"), seconds("90m"), seconds("7d")), (Ok(28_800), Ok(5400), Ok(604_800)));
        assert_eq!(seconds("1h30m"), Ok(5400));
        for bad in ["", "8", "h", "-8h", "eight hours"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
