//! `refitctl auth rotate`: moves the rotation of the authorities from phase to phase and shows who lags.

use std::time::Duration;

use jiff::Timestamp;
use refit_proto::code_of;
use refit_proto::rotation::v1::rotation_service_client::RotationServiceClient;
use refit_proto::rotation::v1::{self as wire, GetRotationRequest, SetPhaseRequest, StartAutomaticRequest};
use refit_proto::v1::RotationPhase;
use serde::Serialize;

use super::{Global, duration};
use crate::exit::Failure;
use crate::output;

/// Replaces the cluster's authorities without a dropped agent.
///
/// By hand, from phase to phase: init, update_clients, update_servers, standby; or rollback, then standby.
/// Or automatically, within a grace period.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  refitctl auth rotate --grace-period 48h\n  refitctl auth rotate --phase init\n  \
    refitctl auth rotate status"
)]
pub(crate) struct Rotate {
    #[command(subcommand)]
    command: Option<Command>,
    /// The phase to go to: init, update_clients, update_servers, standby or rollback
    #[arg(
        long,
        value_name = "PHASE",
        conflicts_with = "grace_period",
        required_unless_present = "grace_period"
    )]
    phase: Option<String>,
    /// Go through all phases by itself, within this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    grace_period: Option<Duration>,
    /// Advance although some hosts or identities lag; they will have to join or be signed again
    #[arg(long, requires = "phase")]
    force: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show where the rotation stands, and who lags
    #[command(after_help = "Example:\n  refitctl auth rotate status --format json")]
    Status,
}

#[derive(Serialize)]
struct Rotation {
    id: String,
    phase: String,
    mode: String,
    started_at: Option<Timestamp>,
    phase_since: Option<Timestamp>,
    next_phase_at: Option<Timestamp>,
    ca_pins: Vec<String>,
    lagging: Vec<Lagging>,
}

#[derive(Serialize)]
struct Lagging {
    kind: String,
    id: String,
    name: String,
    reason: String,
}

impl Rotate {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = RotationServiceClient::new(global.target.connect().await?);
        let answer = match (self.command, self.phase, self.grace_period) {
            (Some(Command::Status), _, _) => client.get_rotation(GetRotationRequest {}).await?,
            (None, Some(phase), _) => {
                let phase_code = code_of::<RotationPhase>(&phase);
                client.set_phase(SetPhaseRequest { phase, phase_code, force: self.force }).await?
            }
            (None, None, grace) => {
                let grace_period = grace.and_then(|grace| grace.try_into().ok());
                client.start_automatic(StartAutomaticRequest { grace_period }).await?
            }
        };
        let rotation = Rotation::from(answer.into_inner());
        output::show(global.format, &rotation, || text(&rotation, Timestamp::now()))
    }
}

fn text(rotation: &Rotation, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map_or_else(|| "-".into(), |at| output::moment(at, now));
    let mut facts = vec![("Phase", rotation.phase.clone()), ("Mode", rotation.mode.clone())];
    if !rotation.id.is_empty() {
        facts.push(("Started", when(rotation.started_at)));
        facts.push(("In this phase since", when(rotation.phase_since)));
    }
    if rotation.next_phase_at.is_some() {
        facts.push(("Goes on", when(rotation.next_phase_at)));
    }
    facts.push(("Trusted CAs", rotation.ca_pins.join(", ")));
    let facts = output::facts(facts);
    if rotation.lagging.is_empty() {
        return format!("{facts}\n\nNobody lags.");
    }
    let rows = rotation
        .lagging
        .iter()
        .map(|who| [who.kind.clone(), who.name.clone(), who.id.clone(), who.reason.clone()]);
    let lagging = output::table(["LAGGING", "NAME", "ID", "REASON"], rows);
    format!("{facts}\n\n{lagging}")
}

impl From<wire::Rotation> for Rotation {
    fn from(rotation: wire::Rotation) -> Self {
        let (phase, mode) = (rotation.phase_text(), rotation.mode_text());
        let lagging = rotation.lagging.into_iter().map(|who| Lagging {
            kind: who.kind_text(),
            id: who.id,
            name: who.name,
            reason: who.reason,
        });
        Self {
            phase,
            mode,
            id: rotation.id,
            started_at: super::timestamp(rotation.started_at),
            phase_since: super::timestamp(rotation.phase_since),
            next_phase_at: super::timestamp(rotation.next_phase_at),
            ca_pins: rotation.ca_pins,
            lagging: lagging.collect(),
        }
    }
}
