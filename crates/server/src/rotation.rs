//! Advances automatic rotations of the authorities, and finds the hosts and people that would be cut off.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::RotationError;
use refit_backend::{Error, Result, SharedBackend};
use refit_identity::{CaPin, Phase};
use refit_types::{HostRecord, RotationMark};
use tokio::sync::watch;

use crate::authorities::{Authorities, Current};
use crate::events::{Event, Events, SERVER};
use crate::fleet::{Fleet, FleetView, LOADED_WITHIN};
use crate::issued_identities::{self, IssuedIdentity};

/// How often an automatic rotation is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A host or person that would be cut off if the rotation advanced now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Laggard {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Hosts that have not completed the current phase, and people whose identity is signed only by the old authority when
/// servers are about to switch to the new one.
pub(crate) async fn laggards(
    backend: &SharedBackend,
    fleet: &Fleet,
    current: &Current,
    now: Timestamp,
) -> Result<Vec<Laggard>> {
    let phase = current.authority().phase();
    if phase == Phase::Standby {
        return Ok(Vec::new());
    }
    // Hosts that are not loaded yet would be missed.
    if !fleet.until_loaded(LOADED_WITHIN).await {
        let reason = "its hosts have not all been read yet; try again".into();
        return Err(Error::Unavailable { store: backend.describe(), reason });
    }
    let mark = current.mark();
    let mut lagging = fleet.scan_view(move |view| lagging_hosts(view, &mark)).await?;
    if matches!(phase, Phase::UpdateClients | Phase::UpdateServers) {
        let signer = CaPin::of(current.authority().certificate()).to_string();
        let issued = issued_identities::unexpired(backend, now).await?;
        lagging.extend(issued.into_iter().filter(|issued| issued.ca_pin != signer).map(lagging_user));
    }
    Ok(lagging)
}

/// The hosts that have not completed the phase. Hosts with unreadable records count as lagging.
fn lagging_hosts(view: &FleetView, mark: &RotationMark) -> Vec<Laggard> {
    let lags =
        |host_record: &HostRecord| host_record.report.as_ref().is_none_or(|report| report.rotation != *mark);
    let readable = view.hosts.iter().filter(|(host, _)| !view.unreadable.contains_key(host));
    let lagging = readable.filter(|(_, known)| lags(&known.value));
    let lagging = lagging.map(|(_, known)| lagging_host(&known.value, &mark.phase));
    let unreadable = view.unreadable.iter().map(|(host, unreadable)| Laggard {
        kind: "host",
        id: host.to_string(),
        name: host.to_string(),
        reason: format!("its record {} cannot be read by this server", unreadable.value.key),
    });
    lagging.chain(unreadable).collect()
}

fn lagging_host(host_record: &HostRecord, phase: &str) -> Laggard {
    let reason = match &host_record.report {
        None => "it has joined and never reported".into(),
        Some(report) if host_record.server.is_some() => {
            let at = if report.rotation.id.is_empty() { "no phase" } else { &report.rotation.phase };
            format!("it is connected and has reached {at}, not {phase}")
        }
        Some(_) => {
            format!("it is away, last seen at {}", host_record.last_seen.strftime("%Y-%m-%d %H:%M:%S UTC"))
        }
    };
    Laggard {
        kind: "host",
        id: host_record.host_id.to_string(),
        name: host_record.hostname.to_string(),
        reason,
    }
}

fn lagging_user(issued: IssuedIdentity) -> Laggard {
    let until = issued.expires.strftime("%Y-%m-%d %H:%M:%S UTC");
    let reason = format!("signed by the old authority, good until {until}; sign it again");
    Laggard { kind: "user", id: issued.serial, name: issued.user, reason }
}

/// Advances an automatic rotation when it is due and nobody lags, until the server stops. Every server tries; the first
/// to store the next phase wins.
pub(crate) async fn drive(
    backend: SharedBackend,
    fleet: Arc<Fleet>,
    authorities: Arc<Authorities>,
    events: Arc<Events>,
    now: fn() -> Timestamp,
    mut stop: watch::Receiver<bool>,
) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let current = authorities.current();
        let Some(rotation) = current.authority().rotation() else { continue };
        let Some((next, due)) = rotation.next_phase() else { continue };
        if now() < due {
            continue;
        }
        match laggards(&backend, &fleet, &current, now()).await {
            Ok(lagging) if !lagging.is_empty() => {
                tracing::debug!(
                    lagging = lagging.len(),
                    "the rotation waits for lagging hosts or identities"
                );
            }
            Ok(_) => match go_on(&authorities, &events, &current, next, now()).await {
                Ok(()) => {
                    tracing::info!(target: "audit", phase = %next, "the rotation of the authorities advanced");
                }
                Err(error) => {
                    tracing::warn!(%error, "could not advance the rotation of the authorities; retrying every second")
                }
            },
            Err(error) => {
                tracing::warn!(%error, "could not determine who lags in the rotation; retrying every second")
            }
        }
    }
}

/// Advances an automatic rotation to its next phase.
pub(crate) async fn go_on(
    authorities: &Authorities,
    events: &Events,
    current: &Current,
    next: Phase,
    now: Timestamp,
) -> std::result::Result<(), RotationError> {
    let Some(rotation) = current.authority().rotation() else { return Ok(()) };
    let message = format!("moved the rotation of the authorities to {next}");
    let event = Event::new("rotation.phase", SERVER, "authorities", message);
    let entry = events.entry(event).map_err(refit_authority::Error::from)?;
    authorities.advance(current, next, rotation.mode, now, &[entry]).await
}
