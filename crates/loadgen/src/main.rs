//! `refit-loadgen`: a fleet in one process.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use refit_identity::CaPin;
use refit_loadgen::{AgentError, FleetOptions, SimulatedFleet};

/// Holds many agents in one process, each joined and connected for real, and tells what they get done.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Example:\n  refit-loadgen --proxy 127.0.0.1:3080 --token T --ca-pin sha256:… --agents 10000"
)]
struct Args {
    /// The control plane
    #[arg(long, value_name = "HOST:PORT")]
    proxy: String,
    /// A token for the role node
    #[arg(long, env = "REFIT_TOKEN", hide_env_values = true)]
    token: String,
    /// The pin of the cluster's CA
    #[arg(long, value_name = "sha256:…")]
    ca_pin: CaPin,
    /// How many agents
    #[arg(long, default_value_t = 1000)]
    agents: usize,
    /// How many join or connect at the same time
    #[arg(long, default_value_t = 64)]
    at_once: usize,
    /// Labels of each agent
    #[arg(long, default_value_t = 5)]
    labels: usize,
    /// Milliseconds between two heartbeats of an agent
    #[arg(long, default_value_t = 5000)]
    every_ms: u64,
    /// Seconds to run once all are connected
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), AgentError> {
    let options = FleetOptions {
        proxy: args.proxy,
        token: args.token,
        ca_pin: args.ca_pin,
        agents: args.agents,
        at_once: args.at_once.max(1),
        labels: args.labels,
        version: "1.0.0".into(),
    };
    let per_second = |count: f64, took: Duration| count / took.as_secs_f64();
    let started = Instant::now();
    let joined = SimulatedFleet::join(&options).await?;
    println!("joined {}: {:.0}/s", joined.len(), per_second(joined.len() as f64, started.elapsed()));
    let started = Instant::now();
    let fleet = SimulatedFleet::connect(&options, &joined).await?;
    println!("connected {}: {:.0}/s", joined.len(), per_second(joined.len() as f64, started.elapsed()));
    let started = Instant::now();
    let (counts, _tasks) = fleet.beat(Duration::from_millis(args.every_ms.max(1)));
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let beats = counts.heartbeats.load(Ordering::Relaxed);
    println!(
        "heartbeats: {:.0}/s, {} ended",
        per_second(beats as f64, started.elapsed()),
        counts.ended.load(Ordering::Relaxed)
    );
    Ok(())
}
