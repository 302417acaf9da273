//! Many simulated agents: joined, connected, and reporting at a given pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use refit_identity::{CaPin, SERVER_NAME, pinned_client_config};
use refit_proto::dial;
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::{AgentError, Joined, SimulatedAgent};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// `HOST:PORT` of the control plane.
    pub proxy: String,
    /// The token to join with.
    pub token: String,
    /// How the control plane is known.
    pub ca_pin: CaPin,
    /// How many agents.
    pub agents: usize,
    /// How many join or connect at the same time.
    pub at_once: usize,
    /// Labels of each.
    pub labels: usize,
    /// The version that they report.
    pub version: String,
}

/// What a fleet has done so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Heartbeats that were answered.
    pub heartbeats: AtomicU64,
    /// Agents whose stream ended.
    pub ended: AtomicU64,
}

/// Agents that are connected.
pub struct SimulatedFleet {
    /// Each with a connection of its own.
    pub agents: Vec<SimulatedAgent>,
}

impl SimulatedFleet {
    /// A connection that knows the control plane by its pin.
    pub async fn pinned_channel(options: &FleetOptions) -> Result<Channel, AgentError> {
        let name =
            ServerName::try_from(SERVER_NAME).map_err(|error| AgentError::Refused(error.to_string()))?;
        Ok(dial(&options.proxy, name, pinned_client_config(options.ca_pin)?).await?)
    }

    /// Joins all of them, over one connection.
    pub async fn join(options: &FleetOptions) -> Result<Vec<Joined>, AgentError> {
        let channel = Self::pinned_channel(options).await?;
        let joins = (0..options.agents).map(|_| Joined::by_token(channel.clone(), &options.token));
        let joined: Vec<_> = stream::iter(joins).buffer_unordered(options.at_once).collect().await;
        joined.into_iter().collect()
    }

    /// Connects all of them.
    pub async fn connect(options: &FleetOptions, joined: &[Joined]) -> Result<Self, AgentError> {
        let connects = joined
            .iter()
            .map(|joined| SimulatedAgent::connect(&options.proxy, joined, options.labels, &options.version));
        let agents: Vec<_> = stream::iter(connects).buffer_unordered(options.at_once).collect().await;
        Ok(Self { agents: agents.into_iter().collect::<Result<_, _>>()? })
    }

    /// Has all of them send heartbeats at that pace, in the background, for as long as the result lives.
    pub fn beat(self, every: Duration) -> (Arc<Counts>, JoinSet<AgentError>) {
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        for mut agent in self.agents {
            let counts = counts.clone();
            tasks.spawn(async move {
                let answered = || {
                    counts.heartbeats.fetch_add(1, Ordering::Relaxed);
                };
                let error = agent.keep_beating(every, answered).await;
                counts.ended.fetch_add(1, Ordering::Relaxed);
                error
            });
        }
        (counts, tasks)
    }
}
