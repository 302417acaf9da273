//! Refit as one binary: `refit server`, `refit agent`, and `refitctl` or `refit-update` when it is called by that
//! name; these also as `refit ctl` and `refit update`.

mod agent;
mod archive;
mod ctl;
mod data_dir;
mod demo;
mod exit;
mod invocation;
mod log;
mod output;
mod server;
mod stamp;
mod update;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use refit_types::Edition;

use crate::exit::Failure;
use crate::invocation::Invocation;
use crate::output::Format;

/// Requests cause many small allocations on several threads, for which the system's allocator is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Which build this is, of the agent and of the server alike.
pub(crate) const EDITION: Edition = Edition::Oss;

/// Keeps a fleet of agents on the version that its operator chose.
#[derive(Debug, Parser)]
#[command(name = "refit", version = stamp::text(), max_term_width = 100)]
#[command(after_help = "Example:\n  refit server\n  refit ctl status")]
struct Refit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a control plane
    Server(server::Args),
    /// Run the agent of a host, or ask how it is
    Agent(agent::Args),
    /// Administer a cluster (the same as refitctl)
    Ctl(ctl::Args),
    /// Keep the agent of this host on the version that the cluster wants (the same as refit-update)
    Update(update::Args),
    Demo(demo::Args),
    /// Show the version of this program
    #[command(after_help = "Example:\n  refit version --format json")]
    Version {
        /// How to show the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    #[command(hide = true)]
    Stamp(stamp::Args),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  refit completions bash > /etc/bash_completion.d/refit")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

fn main() -> ExitCode {
    // Fails only if a provider is installed already, which is just as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let invocation = Invocation::of_this_process();
    let outcome = if invocation.is("refitctl") {
        ctl::run(ctl::Program::parse().args, &invocation)
    } else if invocation.is("refit-update") {
        update::run(update::Program::parse().args, &invocation)
    } else {
        match Refit::parse().command {
            Command::Server(args) => server::run(args, &invocation),
            Command::Agent(args) => agent::run(args),
            Command::Ctl(args) => ctl::run(args, &invocation),
            Command::Update(args) => update::run(args, &invocation),
            Command::Demo(args) => args.run(&invocation),
            Command::Version { format } => version::show("refit", format),
            Command::Stamp(args) => args.run(),
            Command::Completions { shell } => output::completions(shell, Refit::command()),
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs asynchronous work to its end.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::failed)?;
    runtime.block_on(work)
}
