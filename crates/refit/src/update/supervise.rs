//! The arguments of `refit-update supervise`, and of the hidden command by which it starts its children.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use refit_update::{ChildProgram, Supervision, supervise};

use super::Global;
use super::host::Host;
use crate::exit::Failure;

/// Run the agent and its updater where there is no systemd
///
/// A container's entry point: starts the agent, and again if it fails, and looks for updates. It ends with the
/// agent on SIGTERM, and passes SIGHUP on to it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refit-update supervise\n  refit-update --root /srv/host1 supervise --every 1m -- agent start --labels environment=staging"
)]
pub(super) struct Args {
    /// How often to look for updates, beside when the cluster says that one is due
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period)]
    every: Duration,
    /// What the agent is given [default: agent start]
    #[arg(last = true, value_name = "ARGUMENTS OF THE AGENT")]
    arguments: Vec<OsString>,
}

impl Args {
    pub(super) fn run(self, host: &Host, global: &Global) -> Result<(), Failure> {
        let arguments = match self.arguments {
            given if !given.is_empty() => given,
            _ if global.profile.is_none() => ["agent", "start"].map(Into::into).into(),
            _ => return Err(Failure::usage("say behind -- how the agent of this profile is started")),
        };
        crate::log::to_stderr()?;
        let supervision = Supervision {
            layout: &host.layout,
            profile: &host.profile,
            arguments,
            global: host.same_agent().to_vec(),
            every: self.every,
        };
        supervise(&supervision).map_err(Failure::failed)
    }
}

/// Become a program that ends with the supervisor (for its use only)
#[derive(Debug, clap::Args)]
pub(super) struct ChildProgramArgs {
    #[arg(long)]
    hangup_waits: bool,
    parent: u32,
    name: OsString,
    program: PathBuf,
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

impl ChildProgramArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { hangup_waits, parent, name, program, arguments } = self;
        let shown = program.display().to_string();
        match (ChildProgram { parent, name, program, arguments, hangup_waits }).run() {
            Ok(never) => match never {},
            Err(error) => Err(Failure::failed(format!("{shown} cannot be started: {error}"))),
        }
    }
}

const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
const LONGEST_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads `10m`, `1h30m`.
fn period(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|period| Duration::try_from(period).ok());
    match parsed {
        Some(period) if (SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period) => Ok(period),
        Some(_) => Err("expected 1s to 168h (7 days)".into()),
        None => Err("expected something like 10m or 1h30m".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        assert_eq!(period("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(period("1s"), Ok(SHORTEST_PERIOD));
        for bad in ["0s", "10", "-5m", "169h", "soon", "999999999999h"] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
