//! How long an operator's `pause` takes while a whole fleet reconnects: every first heartbeat of a new process says
//! something new and is written, and the pause must not queue behind them. Used by the `fleet` benchmark.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use refit_identity::{Identity, SERVER_NAME, client_config};
use refit_loadgen::{FleetOptions, Joined, SimulatedAgent, SimulatedFleet};
use refit_proto::dial;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_proto::rollouts::v1::{GetRolloutRequest, PauseRequest, ResumeRequest};
use refit_testbed::Server;
use refit_types::DataDir;
use rustls::pki_types::ServerName;
use tonic::transport::Channel;

use crate::records::Outcome;

/// Agents that connect at once: more than the server writes and queues, and few enough that none of them waits for
/// its handshake for longer than agents do.
const AT_ONCE: usize = 3_000;
/// When it is paused: as soon as so many quarters of the fleet are heard again.
const QUARTERS: [usize; 3] = [1, 2, 3];
/// For the group to open, and for the fleet to get as far as the next quarter.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// One pause.
#[derive(Clone, Copy)]
pub struct Paused {
    /// Until the call had returned and the status of the same server showed the pause.
    pub took: Duration,
    /// Agents that had connected or were about to, and whose first heartbeat was not answered yet.
    pub waiting: usize,
}

/// Agents of a fleet that reconnects.
#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    answered: AtomicUsize,
}

/// Drops all connections of the fleet, has every agent connect again as a new process, and pauses the rollout at
/// several points of that. The operator is connected already: handshakes are not what is measured.
pub async fn pauses(
    server: &Server,
    options: &FleetOptions,
    joined: &[Joined],
    fleet: SimulatedFleet,
) -> Outcome<Vec<Paused>> {
    let mut operator = operator(server).await?;
    server.ask(&["autoupdate", "update", "--set-agent-version=15.1.1", "--allow-missing"]);
    let group = ["--schedule", "regular", "--group", "all", "--add", "--set-window-hours=24"];
    server.ask(&[&["autoupdate", "update"][..], &group].concat());
    until("hosts are in flight", || in_flight(operator.clone())).await?;

    drop(fleet);
    let counts = Counts::default();
    let reconnects = joined.iter().map(|joined| reconnect(options, joined, &counts));
    let reconnecting = stream::iter(reconnects).buffer_unordered(AT_ONCE).collect::<Vec<SimulatedAgent>>();
    let pausing = async {
        let mut pauses = Vec::new();
        for quarter in QUARTERS {
            let enough = joined.len() * quarter / 4;
            until("a quarter of the fleet is back", async || {
                Ok(counts.answered.load(Ordering::Relaxed) >= enough)
            })
            .await?;
            let begun = counts.begun.load(Ordering::Relaxed);
            let waiting = begun.saturating_sub(counts.answered.load(Ordering::Relaxed));
            pauses.push(Paused { took: pause(&mut operator).await?, waiting });
            operator.resume(ResumeRequest::default()).await?;
        }
        Outcome::Ok(pauses)
    };
    // The agents stay connected until the last pause is measured.
    let (_agents, pauses) = tokio::join!(reconnecting, pausing);
    pauses
}

async fn pause(operator: &mut RolloutServiceClient<Channel>) -> Outcome<Duration> {
    let started = Instant::now();
    operator.pause(PauseRequest::default()).await?;
    while operator.get_rollout(GetRolloutRequest::default()).await?.into_inner().paused_at.is_none() {
        if started.elapsed() > TIMEOUT {
            return Err("the server does not say that it is paused".into());
        }
    }
    Ok(started.elapsed())
}

/// Connects as an agent does: again and again, until the first heartbeat is answered.
async fn reconnect(options: &FleetOptions, joined: &Joined, counts: &Counts) -> SimulatedAgent {
    counts.begun.fetch_add(1, Ordering::Relaxed);
    loop {
        let connect = SimulatedAgent::connect(&options.proxy, joined, options.labels, &options.version);
        if let Ok(agent) = connect.await {
            counts.answered.fetch_add(1, Ordering::Relaxed);
            return agent;
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

async fn operator(server: &Server) -> Outcome<RolloutServiceClient<Channel>> {
    let identity = Identity::read(&DataDir::new(server.data()).admin_identity())?;
    let name = ServerName::try_from(SERVER_NAME)?;
    Ok(RolloutServiceClient::new(dial(server.address(), name, client_config(&identity)?).await?))
}

async fn in_flight(mut operator: RolloutServiceClient<Channel>) -> Outcome<bool> {
    let rollout = operator.get_rollout(GetRolloutRequest::default()).await?.into_inner();
    Ok(rollout.groups.iter().any(|group| group.in_flight > 0))
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<()> {
    let end = Instant::now() + TIMEOUT;
    while !holds().await? {
        if Instant::now() > end {
            return Err(format!("waited in vain: {what}").into());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    Ok(())
}
