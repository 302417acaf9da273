//! The command line of `refit agent`: merges flags, environment and file into settings and runs the agent crate.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use refit_agent::{EXIT_UNREACHABLE, End, Settings, Token, query_readiness, run as run_agent};
use refit_types::{DataDir, Labels};

use crate::data_dir::default_data_dir;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::stamp;

const CONFIG_FILE: &str = "/etc/refit.yaml";

/// Runs the agent of a host, or asks how it is.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refit agent start --proxy refit.example.com:3080 --token T --ca-pin sha256:…\n  refit agent status"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Join the cluster if the host has not, and report to it
    Start(Box<Start>),
    /// Show the status of the agent on this host
    #[command(after_help = "Example:\n  refit agent status --format json")]
    Status(Status),
}

/// Runs the agent. Once it has joined it needs no token.
///
/// Each setting is taken from the first place that names it: the command line, the environment, the
/// configuration file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  refit agent start --proxy refit.example.com:3080 --token T --ca-pin sha256:… --labels environment=staging"
)]
struct Start {
    /// A YAML file with these settings [default: /etc/refit.yaml, if it is there]
    #[arg(long, value_name = "FILE", env = "REFIT_CONFIG")]
    config: Option<PathBuf>,
    /// Where everything of this agent is kept [default: /var/lib/refit, or ~/.local/share/refit for a user]
    #[arg(long, value_name = "DIR", env = "REFIT_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// What this host is called in the cluster [default: its hostname]
    #[arg(long, value_name = "NAME", env = "REFIT_NODENAME")]
    nodename: Option<String>,
    /// The control plane; several are tried in turn
    #[arg(long, value_name = "HOST:PORT,…", env = "REFIT_PROXY", value_delimiter = ',')]
    proxy: Option<Vec<String>>,
    /// The token that lets the host join
    #[arg(long, value_name = "TOKEN", env = "REFIT_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The pin of the cluster's CA, by which a host that joins knows the control plane
    #[arg(long, value_name = "sha256:…", env = "REFIT_CA_PIN")]
    ca_pin: Option<String>,
    /// What the agent does on this host: node, kube, app, db, discovery [default: node]
    #[arg(long, value_name = "ROLE,…", env = "REFIT_ROLES", value_delimiter = ',')]
    roles: Option<Vec<String>>,
    /// What is said of the agent, for groups to select by
    #[arg(long, value_name = "NAME=VALUE,…", env = "REFIT_LABELS")]
    labels: Option<Labels>,
    /// Exit so long after the connection to the control plane was lost, 1m or more [default: 5m]
    #[arg(long, value_name = "TIME", env = "REFIT_UNREACHABLE_EXIT")]
    unreachable_exit: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Status {
    /// The agent's data directory
    #[arg(long, value_name = "DIR", env = "REFIT_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// How to show the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Start(start) => start.run(),
        Command::Status(status) => status.run(),
    }
}

impl Start {
    fn settings(self) -> Result<Settings, Failure> {
        let named =
            self.config.or_else(|| Some(CONFIG_FILE.into()).filter(|path: &PathBuf| Path::exists(path)));
        let file = named.as_deref().map(Settings::read).transpose().map_err(Failure::usage)?;
        let pairs = |labels: Labels| labels.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let nearer = Settings {
            data_dir: self.data_dir,
            nodename: self.nodename,
            proxies: self.proxy,
            token: self.token.map(Token::new),
            ca_pin: self.ca_pin,
            roles: self.roles,
            instance_labels: self.labels.map(pairs),
            unreachable_exit: self.unreachable_exit,
            ..Settings::default()
        };
        Ok(nearer.over(file.unwrap_or_default()))
    }

    fn run(self) -> Result<(), Failure> {
        let config = self.settings()?.check(&default_data_dir()).map_err(Failure::usage)?;
        crate::log::to_stderr()?;
        let version = stamp::version()?;
        let end = crate::block_on(async {
            run_agent(config, version, crate::EDITION).await.map_err(Failure::failed)
        })?;
        exit_of(end)
    }
}

fn exit_of(end: End) -> Result<(), Failure> {
    match end {
        End::Drained => Ok(()),
        End::Unreachable { reason } => {
            let message = format!("the control plane was not reached for too long: {reason}");
            Err(Failure::with_code(message, EXIT_UNREACHABLE))
        }
    }
}

impl Status {
    fn run(self) -> Result<(), Failure> {
        let data_dir = DataDir::new(self.data_dir.unwrap_or_else(default_data_dir));
        let readiness = crate::block_on(async {
            query_readiness(&data_dir.agent_socket()).await.map_err(Failure::failed)
        })?;
        output::show(self.format, &readiness, || {
            let now = Timestamp::now();
            let dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            output::facts([
                ("Version", readiness.version.to_string()),
                ("Started", output::moment(readiness.started_at, now)),
                ("Process", readiness.pid.to_string()),
                ("Host", dash(readiness.host_id.map(|id| id.to_string()))),
                ("Cluster", dash(readiness.cluster.clone())),
                ("Identity expires", dash(readiness.identity_expires.map(|at| output::moment(at, now)))),
                (
                    "Connected",
                    match &readiness.reason {
                        None if readiness.connected => "yes".into(),
                        reason => format!("no: {}", dash(reason.clone())),
                    },
                ),
            ])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_reaches_nobody_ends_with_its_own_code() {
        assert!(exit_of(End::Drained).is_ok());
        let ended = exit_of(End::Unreachable { reason: "refused".into() }).unwrap_err();
        assert_eq!(ended.code(), 75);
        assert_eq!(ended.to_string(), "the control plane was not reached for too long: refused");
    }
}
