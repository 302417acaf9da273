//! `refit-update`: keeps the agent of this host on the version that the cluster wants.

mod host;
mod progress;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use refit_pki::CaPin;
use refit_types::{UpdaterStatus, Version};
use refit_update::{Config, Outcome, RealDisk, Urgency};

use crate::exit::Failure;
use crate::output::{self, Format};
use crate::{stamp, version};
use host::Host;

/// Keeps the agent of this host on the version that the cluster wants.
#[derive(Debug, Parser)]
#[command(name = "refit-update", version = stamp::text(), max_term_width = 100)]
#[command(after_help = "Example:\n  refit-update enable --proxy refit.example.com:3080")]
pub(crate) struct Program {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What all commands take.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// What is managed: a file that describes another agent than Refit's own
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The root of an image that is being built; no service is asked for anything
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Keeps a second agent on one host apart
    #[arg(long, global = true, value_name = "NAME")]
    install_suffix: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the cluster wants, and keep it so
    #[command(
        after_help = "Example:\n  refit-update enable --proxy refit.example.com:3080 --ca-pin sha256:…"
    )]
    Enable {
        /// The control plane; without it, the one in the agent's configuration
        #[arg(long, value_name = "HOST[:PORT]")]
        proxy: Option<String>,
        /// The pin of the cluster's CA, where no public authority vouches for the control plane
        #[arg(long, value_name = "sha256:…")]
        ca_pin: Option<CaPin>,
        /// Where archives are, if not at the control plane
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
    },
    /// Update the agent if it is due
    #[command(after_help = "Examples:\n  refit-update update\n  refit-update update --now")]
    Update {
        /// Whatever the schedule says, and although it failed before
        #[arg(long)]
        now: bool,
    },
    /// Change nothing any more
    #[command(after_help = "Example:\n  refit-update disable")]
    Disable,
    /// Show what is installed, what is wanted, and what went wrong last
    #[command(after_help = "Example:\n  refit-update status --format text")]
    Status {
        /// How to show the answer
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
    },
    /// Stay on a version, whatever the cluster wants
    #[command(after_help = "Example:\n  refit-update pin 15.1.1 && refit-update update")]
    Pin {
        /// Which one
        version: Version,
    },
    /// Follow the cluster again
    #[command(after_help = "Example:\n  refit-update unpin")]
    Unpin,
    /// Undo what an updater was cut off in the middle of; before the agent starts
    #[command(after_help = "Example:\n  refit-update recover")]
    Recover,
    /// Show the version of this program
    #[command(after_help = "Example:\n  refit-update version --format json")]
    Version {
        /// How to show the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

pub(crate) fn run(program: Program) -> Result<(), Failure> {
    let Program { global, command } = program;
    if let Command::Version { format } = command {
        return version::show("refit-update", format);
    }
    let host = Host::new(&global.root, global.profile.as_deref(), global.install_suffix.as_deref())?;
    if let Command::Status { format } = command {
        let status = host.status();
        return output::show(format, &status, || text(&status));
    }
    let Some(_lock) = host.lock(matches!(command, Command::Recover))? else {
        return output::print("Another updater is at work here, and will finish what it began.");
    };
    if let Command::Recover = command {
        return match host.recover(true)? {
            Some(undone) => output::print(&format!("Undid the switch to {}, which was cut off.", undone.to)),
            None => Ok(()),
        };
    }
    host.recover(false)?;
    let config = Config::load(&RealDisk, &host.layout.config()).map_err(Failure::failed)?;
    match command {
        Command::Enable { proxy, ca_pin, base_url } => {
            let proxy = match proxy.or(config.proxy.clone()) {
                Some(proxy) => proxy,
                None => host.configured_proxy()?,
            };
            let pin = ca_pin.or(pinned(&config)?);
            let told = (proxy.clone(), base_url.clone().or(config.base_url));
            let outcome = host.with_updater(told.0, told.1, pin, |updater| {
                updater.enable(proxy, base_url, ca_pin.map(|pin| pin.to_string()))
            })?;
            tell(&outcome)
        }
        Command::Update { now } => {
            if !config.enabled {
                return output::print(
                    "Updates are disabled on this host; `refit-update enable` enables them.",
                );
            }
            let proxy =
                config.proxy.clone().ok_or_else(|| Failure::failed(refit_update::UpdateError::NoProxy))?;
            let urgency = if now { Urgency::Now } else { Urgency::Due };
            let pin = pinned(&config)?;
            let outcome =
                host.with_updater(proxy, config.base_url, pin, |updater| updater.update(urgency))?;
            tell(&outcome)
        }
        Command::Disable => {
            let outcome = host.with_updater(String::new(), None, None, |updater| updater.disable())?;
            tell(&outcome)
        }
        Command::Pin { version } => {
            host.with_updater(String::new(), None, None, |updater| updater.pin(Some(version.clone())))?;
            output::print(&format!("This host stays on {version} from its next update on."))
        }
        Command::Unpin => {
            host.with_updater(String::new(), None, None, |updater| updater.pin(None))?;
            output::print("This host follows the cluster again.")
        }
        Command::Status { .. } | Command::Recover | Command::Version { .. } => Ok(()),
    }
}

fn pinned(config: &Config) -> Result<Option<CaPin>, Failure> {
    let pin = config.ca_pin.as_deref().map(str::parse::<CaPin>).transpose();
    pin.map_err(|error| Failure::failed(format!("spec.ca_pin of updates.yaml: {error}")))
}

/// What came of it, for a person; an update that was undone is a failure.
fn tell(outcome: &Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome::Nothing(why) => output::print(&format!("Nothing to do: {why}.")),
        Outcome::Switched { from: Some(from), to } => output::print(&format!("Updated from {from} to {to}.")),
        Outcome::Switched { from: None, to } => output::print(&format!("Installed {to}.")),
        Outcome::Held(why) => output::print(&format!("Held: {why}.")),
        Outcome::Undone { version, failure } => Err(Failure::failed(format!(
            "{version} was tried and undone at {failure}; the version before runs again"
        ))),
    }
}

fn text(status: &UpdaterStatus) -> String {
    let version = |version: &Option<Version>| version.as_ref().map_or("-".into(), ToString::to_string);
    let mut facts = vec![
        ("Installed", version(&status.agent_version_installed)),
        ("Wanted", version(&status.agent_version_desired)),
        ("Before", version(&status.agent_version_previous)),
        ("Updates", if status.agent_updates_enabled { "enabled".into() } else { "disabled".into() }),
    ];
    if let Some(at) = status.agent_update_time_last {
        facts.push(("Last update", output::utc(at)));
    }
    if let Some(pinned) = &status.pinned_version {
        facts.push(("Pinned to", pinned.to_string()));
    }
    if let Some(held) = &status.held {
        facts.push(("Held", held.clone()));
    }
    if let Some(failure) = &status.last_failure {
        let (version, step, reason) = (&failure.version, &failure.step, &failure.reason);
        facts.push(("Last failure", format!("{version} at {step}: {reason} ({})", output::utc(failure.at))));
    }
    output::facts(facts)
}
