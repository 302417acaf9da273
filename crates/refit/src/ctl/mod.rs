//! `refitctl`: what an operator asks of a cluster, and how the answers look.

mod auth;
mod connect;
mod migrations;
mod resources;
mod status;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit::Failure;
use crate::invocation::Invocation;
use crate::output::{self, Format};

/// Administers a Refit cluster.
#[derive(Debug, Parser)]
#[command(name = "refitctl", version, max_term_width = 100)]
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
    /// Delete a resource
    Rm(resources::Rm),
    /// Say who may speak to the cluster
    #[command(after_help = "Example:\n  refitctl auth sign --user alice --roles viewer --out alice.json")]
    Auth {
        #[command(subcommand)]
        command: auth::Command,
    },
    /// Show and apply changes of the shape of stored data
    #[command(after_help = "Examples:\n  refitctl migrations ls\n  refitctl migrations apply")]
    Migrations {
        #[command(subcommand)]
        command: migrations::Command,
    },
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
            Command::Rm(rm) => rm.run(&global).await,
            Command::Auth { command } => command.run(&global, invocation).await,
            Command::Migrations { command } => command.run(&global).await,
            Command::Completions { shell } => output::completions(shell, Program::command()),
        }
    })
}

/// A moment of the wire.
fn timestamp(at: Option<prost_types::Timestamp>) -> Option<jiff::Timestamp> {
    let at = at?;
    jiff::Timestamp::new(at.seconds, at.nanos).ok()
}
