//! `refit-update`: the command line of the host updater. Takes the lock, rolls back what was interrupted, and calls the
//! updater of `refit_update`.

mod host;
mod progress;
mod relay;
mod retry;
mod supervise;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use refit_identity::CaPin;
use refit_types::{UpdaterStatus, Version};
use refit_update::{Disproved, FailedStep, Lock, Outcome, Recovered, Recovery, Urgency};

use crate::exit::Failure;
use crate::invocation::Invocation;
use crate::output::{self, Format};
use crate::{stamp, version};
use host::{Host, Wait};
use relay::OnError;
use retry::{NextTry, Tries, wait_for_next_try};

/// Keeps the agent of this host on the version that the cluster wants.
#[derive(Debug, Parser)]
#[command(name = "refit-update", version = stamp::text(), max_term_width = 100)]
pub(crate) struct Program {
    #[command(flatten)]
    pub(crate) args: Args,
}

/// Keeps the agent of this host on the version that the cluster wants.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  refit-update enable --proxy refit.example.com:3080")]
pub(crate) struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The arguments of all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// What is managed: a file that describes another agent than Refit's own
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The root of an image that is being built, or of a host with a supervisor; systemd is not asked there
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
        /// Where archives are, if not at the control plane; several are tried in turn
        #[arg(long, value_name = "URL,…", value_delimiter = ',')]
        base_url: Option<Vec<String>>,
        /// Install the version at once, also if the cluster does not want it on this host yet
        #[arg(long)]
        now: bool,
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
    /// Roll back a switch that was interrupted; before the agent starts
    #[command(after_help = "Examples:\n  refit-update recover\n  refit-update recover --online")]
    Recover {
        /// On a host that is up: stop the agent for it, and start it again if it ran before
        #[arg(long)]
        online: bool,
    },
    /// Stop the agent and remove what this program installed; configuration and data stay
    #[command(after_help = "Example:\n  refit-update uninstall")]
    Uninstall,
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  refit-update completions bash > /etc/bash_completion.d/refit-update")]
    Completions {
        /// The shell
        shell: Shell,
    },
    Supervise(supervise::Args),
    #[command(hide = true)]
    Tied(supervise::ChildProgramArgs),
    /// Show the version of this program
    #[command(after_help = "Example:\n  refit-update version --format json")]
    Version {
        /// How to show the answer
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// How long a command of an operator waits for the lock: a download over a slow line and a health check take less.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

pub(crate) fn run(args: Args, invocation: &Invocation) -> Result<(), Failure> {
    let Args { global, command } = args;
    match command {
        Command::Version { format } => return version::show("refit-update", format),
        Command::Completions { shell } => return output::completions(shell, Program::command()),
        _ => {}
    }
    if let Command::Tied(tied) = command {
        return tied.run();
    }
    let host = Host::new(&global.root, global.profile.as_deref(), global.install_suffix.as_deref())?;
    if let Command::Status { format } = command {
        let status = host.status();
        return output::show(format, &status, || text(&status));
    }
    if let Command::Supervise(args) = command {
        return args.run(&host, &global);
    }
    crate::log::steps_to_stderr()?;
    if let Command::Recover { online } = command {
        return recover(&host, if online { Recovery::Online } else { Recovery::BeforeStart });
    }
    let on_error = match command {
        Command::Update { .. } => OnError::HandOn,
        _ => OnError::Report,
    };
    let done = match relay::delegate(&host, invocation, on_error) {
        Ok(Some(code)) => Failure::passed_on(code),
        Ok(None) => carry_out(&host, command),
        Err(failure) => Err(failure),
    };
    done.map_err(relay::answered)
}

/// Carries a command out that changes something.
fn carry_out(host: &Host, command: Command) -> Result<(), Failure> {
    match command {
        Command::Update { now: false } => update(host),
        Command::Update { now: true } => {
            let lock = host.wait_for_lock(PATIENCE, Wait::UntilItIsDone)?;
            update_with(host, Urgency::Now, &lock).and_then(|outcome| print_outcome(&outcome))
        }
        Command::Enable { proxy, ca_pin, base_url, now } => {
            let _lock = host.wait_for_lock(PATIENCE, Wait::UntilItIsDone)?;
            enable(host, proxy, ca_pin, base_url, now)
        }
        Command::Uninstall if host.is_bare()? => print_uninstalled(false),
        other => {
            let _lock = host.wait_for_lock(PATIENCE, Wait::EndingADownload)?;
            host.roll_back_interrupted()?;
            change(host, other)
        }
    }
}

/// Rolls back what was interrupted; if this updater cannot, the one of the version before does.
fn recover(host: &Host, recovery: Recovery) -> Result<(), Failure> {
    let arguments = match recovery {
        Recovery::Online => &["recover", "--online"][..],
        Recovery::BeforeStart => &["recover"],
    };
    recover_here(host, recovery).or_else(|failure| {
        tracing::warn!("The switch was not rolled back by this updater: {failure}");
        if relay::recover_by_previous(host, arguments) { Ok(()) } else { Err(failure) }
    })
}

/// Does nothing while another updater holds the lock: that one finishes its switch itself.
fn recover_here(host: &Host, recovery: Recovery) -> Result<(), Failure> {
    let Some(_lock) = host.try_lock()? else {
        return output::print("Another updater is at work here, and will finish what it began.");
    };
    match host.recover(recovery)? {
        Recovered::Interrupted(switch) => {
            output::print(&format!("Rolled back the switch to {}, which was interrupted.", switch.to))
        }
        Recovered::Disproved(Disproved { version, from, failure, .. }) => {
            output::print(&format!("Rolled back from {version} to {from}: {}.", failure.reason))
        }
        Recovered::Nothing => Ok(()),
    }
}

/// The command of the timer. The lock is free during every delay, so that no other command waits for it.
fn update(host: &Host) -> Result<(), Failure> {
    let (mut urgency, mut tries) = (Urgency::Due, Tries::begin(Instant::now()));
    loop {
        let Some(lock) = host.try_lock()? else {
            return output::print("Another updater is at work on this host; it does what is due.");
        };
        let outcome = update_with(host, urgency, &lock)?;
        drop(lock);
        match outcome {
            Outcome::Later(wait) if urgency == Urgency::Due => {
                tracing::info!("An update is due; it begins in {} s", wait.as_secs());
                std::thread::sleep(wait);
                urgency = Urgency::Spread;
            }
            Outcome::Obstructed { failure, attempt, delay, .. }
                if tries.take_another(Instant::now(), delay) =>
            {
                tracing::warn!(
                    "The update cannot begin, at {failure}; it is tried again in {} s",
                    delay.as_secs()
                );
                if wait_for_next_try(host, attempt, delay) == NextTry::OfAnotherAttempt {
                    urgency = Urgency::Due;
                }
            }
            outcome => return print_outcome(&outcome),
        }
    }
}

fn update_with(host: &Host, urgency: Urgency, _: &Lock) -> Result<Outcome, Failure> {
    host.roll_back_interrupted()?;
    host.with_updater(|updater| updater.update(urgency, host))
}

fn enable(
    host: &Host,
    proxy: Option<String>,
    ca_pin: Option<CaPin>,
    base_urls: Option<Vec<String>>,
    is_urgent: bool,
) -> Result<(), Failure> {
    host.roll_back_interrupted()?;
    let ca_pin = ca_pin.map(|pin| pin.to_string());
    print_outcome(&host.with_updater(|updater| updater.enable(proxy, base_urls, ca_pin, is_urgent, host))?)
}

/// The commands that do not ask the control plane.
fn change(host: &Host, command: Command) -> Result<(), Failure> {
    match command {
        Command::Disable => {
            host.with_updater(|updater| updater.disable())?;
            output::print("Updates are disabled on this host; `refit-update enable` enables them.")
        }
        Command::Pin { version } => {
            host.with_updater(|updater| updater.pin(Some(version.clone())))?;
            output::print(&format!("This host stays on {version} from its next update on."))
        }
        Command::Unpin => {
            host.with_updater(|updater| updater.pin(None))?;
            output::print("This host follows the cluster again.")
        }
        Command::Uninstall => print_uninstalled(host.with_updater(|updater| updater.uninstall())?),
        _ => Ok(()),
    }
}

fn print_uninstalled(was_there: bool) -> Result<(), Failure> {
    output::print(match was_there {
        true => "Removed what the updater had installed; the agent's configuration and data stay.",
        false => "Nothing is installed on this host, so nothing was removed.",
    })
}

/// Prints the outcome; an update that was rolled back is a failure.
fn print_outcome(outcome: &Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome::Nothing(why) => output::print(&format!("Nothing to do: {why}.")),
        Outcome::Switched { from: Some(from), to } => output::print(&format!("Updated from {from} to {to}.")),
        Outcome::Switched { from: None, to } => output::print(&format!("Installed {to}.")),
        Outcome::Held(why) => output::print(&format!("Held: {why}.")),
        Outcome::CalledOff { version } => {
            output::print(&format!("Nothing to do: {version} is no longer due on this host."))
        }
        Outcome::Later(wait) => output::print(&format!("It is due in {} s.", wait.as_secs())),
        Outcome::Obstructed { version, failure, .. } => {
            let version = version.as_ref().map_or_else(|| "The version".into(), ToString::to_string);
            let error = format!(
                "{version} was not installed, at {failure}; nothing has changed, and it is tried again while it is due"
            );
            // It was refused for the agent's sake: an updater of an older release would not see why, and switch.
            Err(match failure.step {
                FailedStep::Service => relay::settled(error),
                _ => Failure::failed(error),
            })
        }
        Outcome::Failed { version, failure } => {
            Err(Failure::failed(format!("{version} was not installed, at {failure}; nothing has changed")))
        }
        Outcome::Undone { version, failure } => Err(Failure::failed(format!(
            "{version} was tried and undone at {failure}; the version before is active again"
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
    if status.unproved {
        facts.push(("Proved", "not yet: its agent has not run since it was installed".into()));
    }
    if let Some(at) = status.agent_update_time_last {
        facts.push(("Last update", output::utc(at)));
    }
    if let Some(pinned) = &status.pinned_version {
        facts.push(("Pinned to", pinned.to_string()));
    }
    if let Some(held) = &status.held {
        facts.push(("Held", held.clone()));
    }
    if let Some(obstacle) = status.current_obstacle() {
        let next =
            obstacle.next_try.map(|at| format!("; next try at {}", output::utc(at))).unwrap_or_default();
        facts.push(("Obstacle", format!("{obstacle}, last at {}{next}", output::utc(obstacle.at))));
    }
    if let Some(failure) = status.version_failure() {
        let (version, step, reason) = (&failure.version, &failure.step, &failure.reason);
        facts.push(("Last failure", format!("{version} at {step}: {reason} ({})", output::utc(failure.at))));
    }
    let mut text = output::facts(facts);
    if let Some(agent) = status.version_failure().and_then(|failure| failure.agent.as_deref()) {
        output::failed_agent(agent).iter().for_each(|line| text += &format!("\n    {line}"));
    }
    text
}
