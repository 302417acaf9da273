use clap::{Parser, Subcommand};

use crate::exit::Failure;
use crate::output::Format;
use crate::{stamp, version};

/// Keeps the agent of this host on the version that the cluster wants.
#[derive(Debug, Parser)]
#[command(name = "refit-update", version = stamp::text(), max_term_width = 100)]
#[command(after_help = "Example:\n  refit-update version")]
pub(crate) struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the version of this program
    #[command(after_help = "Example:\n  refit-update version --format json")]
    Version {
        /// How to show the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

pub(crate) fn run(program: Program) -> Result<(), Failure> {
    match program.command {
        Command::Version { format } => version::show("refit-update", format),
    }
}
