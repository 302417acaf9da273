//! The command line of `refit server`: merges flags, environment and file into the configuration and runs the server.

use std::path::PathBuf;

use refit_server::{Config, Release, Server, Settings};
use tokio::signal::unix::{SignalKind, signal};

use crate::data_dir::default_data_dir;
use crate::exit::Failure;
use crate::invocation::{Invocation, quoted};
use crate::output;
use crate::stamp;

/// Runs a control plane. Without any configuration it keeps everything in one directory and is ready.
///
/// Each setting is taken from the first place that names it: the command line, the environment, the
/// configuration file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refit server\n  refit server --data-dir /srv/refit --listen 0.0.0.0:3080\n  \
    refit server --backend etcd://10.0.0.1:2379,10.0.0.2:2379/refit"
)]
pub(crate) struct Args {
    /// A YAML file with these settings (keys: data_dir, listen, diag_listen, backend, cluster_name, public_names, static_tokens, find_requests_per_second)
    #[arg(long, value_name = "FILE", env = "REFIT_CONFIG")]
    config: Option<PathBuf>,
    /// Where everything of this server is kept [default: /var/lib/refit, or ~/.local/share/refit for a user]
    #[arg(long, value_name = "DIR", env = "REFIT_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Where to serve everything, over TLS; port 0 takes a free one [default: 0.0.0.0:3080]
    #[arg(long, value_name = "ADDR:PORT", env = "REFIT_LISTEN")]
    listen: Option<String>,
    /// Where to serve health and metrics, without TLS [default: 127.0.0.1:3081]
    #[arg(long, value_name = "ADDR:PORT", env = "REFIT_DIAG_LISTEN")]
    diag_listen: Option<String>,
    /// The store: sqlite:PATH, or etcd://[USER[:PASSWORD]@]HOST:PORT,…/PREFIX[?ca=FILE&cert=FILE&key=FILE]
    /// [default: sqlite in the data directory]
    #[arg(long, value_name = "URL", env = "REFIT_BACKEND", hide_env_values = true)]
    backend: Option<String>,
    /// What a new cluster is called [default: the name of this host]
    #[arg(long, value_name = "NAME", env = "REFIT_CLUSTER_NAME")]
    cluster_name: Option<String>,
    /// Further names and addresses of this server, for its certificate
    #[arg(long, value_name = "NAME,…", env = "REFIT_PUBLIC_NAMES", value_delimiter = ',')]
    public_names: Option<Vec<String>>,
    /// How often one address (of IPv6: one /64) may ask `find`, in bursts of 20 times as many; 0 sets no limit [default: 100]
    #[arg(long, value_name = "N", env = "REFIT_FIND_REQUESTS_PER_SECOND")]
    find_requests_per_second: Option<u32>,
}

impl Args {
    fn config(self) -> Result<Config, Failure> {
        let file = self.config.as_deref().map(Settings::read).transpose().map_err(Failure::usage)?;
        let nearer = Settings {
            data_dir: self.data_dir,
            listen: self.listen,
            diag_listen: self.diag_listen,
            backend: self.backend,
            cluster_name: self.cluster_name,
            public_names: self.public_names,
            static_tokens: None,
            find_requests_per_second: self.find_requests_per_second,
        };
        nearer.over(file.unwrap_or_default()).check(&default_data_dir()).map_err(Failure::usage)
    }
}

/// Serves until it is told to stop.
pub(crate) fn run(args: Args, invocation: &Invocation) -> Result<(), Failure> {
    let config = args.config()?;
    crate::log::to_stderr()?;
    let release = Release { edition: crate::EDITION, ..Release::current(stamp::version()?) };
    crate::block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
        let data_dir = config.data_dir.clone();
        // Start waits for a store that does not respond; a signal must still stop the server.
        let started = tokio::select! {
            started = Server::start(config, release) => started,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        let mut server = started.map_err(Failure::failed)?;
        let mut ctl = invocation.refitctl();
        if data_dir.root() != default_data_dir() {
            ctl = format!("{ctl} --data-dir {}", quoted(data_dir.root()));
        }
        output::print(&greeting(&server, &ctl))?;
        let failed = tokio::select! {
            _ = terminate.recv() => false,
            _ = interrupt.recv() => false,
            () = server.failed() => true,
        };
        tracing::info!("stopping: draining connections");
        server.shut_down().await;
        if failed { Err(Failure::failed("a part of the server failed; see the log")) } else { Ok(()) }
    })
}

fn greeting(server: &Server, ctl: &str) -> String {
    let facts = output::facts([
        ("Cluster", server.cluster.to_string()),
        ("Address", format!("https://{}", server.address)),
        ("CA pin", server.ca_pin.to_string()),
        ("Store", server.store.clone()),
        ("Health", format!("http://{}/readyz", server.diag_address)),
    ]);
    format!("Refit {} is serving.\n\n{facts}\n\nTry next:\n  {ctl} status\n", stamp::text())
}
