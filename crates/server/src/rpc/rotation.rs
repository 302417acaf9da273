//! The service that rotates the authorities: one phase at a time, or all of them by themselves.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::{RotationError, RotationMode};
use refit_backend::SharedBackend;
use refit_identity::{CaPin, Phase};
use refit_proto::code_of;
use refit_proto::rotation::v1 as wire;
use refit_proto::rotation::v1::rotation_service_server::RotationService;
use refit_proto::v1::RotationPhase;
use tonic::{Request, Response, Status};

use super::{rotation_status, store_status, timestamp};
use crate::access::caller;
use crate::authorities::{Authorities, Current};
use crate::events::{Event, Events};
use crate::fleet::Fleet;
use crate::rotation::{Laggard, laggards};

/// Replaces the authorities under a live fleet.
#[derive(Clone)]
pub(crate) struct Rotations {
    pub(crate) backend: SharedBackend,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) events: Arc<Events>,
    pub(crate) now: fn() -> Timestamp,
}

#[tonic::async_trait]
impl RotationService for Rotations {
    async fn get_rotation(
        &self,
        _: Request<wire::GetRotationRequest>,
    ) -> Result<Response<wire::Rotation>, Status> {
        self.answer().await
    }

    async fn set_phase(
        &self,
        request: Request<wire::SetPhaseRequest>,
    ) -> Result<Response<wire::Rotation>, Status> {
        let by = caller(&request)?.name();
        let request = request.into_inner();
        let phase: Phase = request
            .phase_text()
            .parse()
            .map_err(|error| Status::invalid_argument(format!("phase: {error}")))?;
        self.advance(&by, phase, RotationMode::Manual, request.force).await?;
        self.answer().await
    }

    async fn start_automatic(
        &self,
        request: Request<wire::StartAutomaticRequest>,
    ) -> Result<Response<wire::Rotation>, Status> {
        let by = caller(&request)?.name();
        let grace = request.into_inner().grace_period.and_then(|grace| Duration::try_from(grace).ok());
        let grace =
            grace.ok_or_else(|| Status::invalid_argument("grace_period: expected how long it may take"))?;
        self.advance(&by, Phase::Init, RotationMode::Automatic { grace }, false).await?;
        self.answer().await
    }
}

impl Rotations {
    async fn advance(&self, by: &str, to: Phase, mode: RotationMode, force: bool) -> Result<(), Status> {
        let current = self.authorities.current();
        let from = current.authority().phase();
        // Before who lags: nobody would be cut off by what cannot be.
        if !from.possible().contains(&to) {
            return Err(rotation_status(RotationError::Impossible { from, to }));
        }
        let lagging =
            laggards(&self.backend, &self.fleet, &current, (self.now)()).await.map_err(store_status)?;
        if !force && to != Phase::Rollback && !lagging.is_empty() {
            return Err(Status::failed_precondition(told(&lagging)));
        }
        let left = lagging.len();
        let without = if force && left > 0 { format!(", without {left} that lag") } else { String::new() };
        let message = format!("moved the rotation of the authorities from {from} to {to}{without}");
        let event = Event::new("rotation.phase", by, "authorities", message);
        let entry = self.events.entry(event).map_err(store_status)?;
        let advanced = self.authorities.advance(&current, to, mode, (self.now)(), &[entry]).await;
        advanced.map_err(rotation_status)?;
        tracing::info!(target: "audit", by, phase = %to, force, lagging = left, "moved the rotation of the authorities");
        Ok(())
    }

    async fn answer(&self) -> Result<Response<wire::Rotation>, Status> {
        let current = self.authorities.current();
        let lagging =
            laggards(&self.backend, &self.fleet, &current, (self.now)()).await.map_err(store_status)?;
        Ok(Response::new(on_the_wire(&current, lagging)))
    }
}

fn told(lagging: &[Laggard]) -> String {
    let names: Vec<String> = lagging.iter().take(5).map(|who| format!("{} {}", who.kind, who.name)).collect();
    let more = lagging.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "{} would be cut off by the next phase: {}{more}; see `refitctl auth rotate status`, wait for them, or go on \
         without them with --force",
        lagging.len(),
        names.join(", ")
    )
}

fn on_the_wire(current: &Current, lagging: Vec<Laggard>) -> wire::Rotation {
    let rotation = current.authority().rotation();
    let mode = match rotation.map(|rotation| rotation.mode) {
        Some(RotationMode::Automatic { .. }) => "automatic",
        _ => "manual",
    };
    wire::Rotation {
        id: current.mark().id.into(),
        phase_code: code_of::<RotationPhase>(&current.mark().phase),
        phase: current.mark().phase.into(),
        mode: mode.into(),
        mode_code: code_of::<wire::RotationMode>(mode),
        started_at: rotation.map(|rotation| timestamp(rotation.started_at)),
        phase_since: rotation.map(|rotation| timestamp(rotation.phase_since)),
        next_phase_at: rotation.and_then(|rotation| rotation.next_phase_at()).map(timestamp),
        ca_pins: current.authority().certificates().map(|ca| CaPin::of(ca).to_string()).collect(),
        lagging: lagging
            .into_iter()
            .map(|who| wire::Lagging {
                kind: who.kind.into(),
                kind_code: code_of::<wire::LaggingKind>(who.kind),
                id: who.id,
                name: who.name,
                reason: who.reason,
            })
            .collect(),
    }
}
