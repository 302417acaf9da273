//! A rotation of the cluster's authorities as it is stored: its phase, who decides when it goes on, and
//! which steps are possible.

use std::time::Duration;

use jiff::Timestamp;
use refit_identity::Phase;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Who decides when a rotation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum RotationMode {
    /// An operator.
    Manual,
    /// The clock.
    Automatic {
        /// How long the whole rotation takes at least: a third of it for each phase.
        #[serde(rename = "grace_seconds", with = "seconds")]
        grace: Duration,
    },
}

/// The rotation that runs, or the last one that did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// A UUID that tells it from all others.
    pub id: String,
    /// How far it has come.
    pub phase: Phase,
    /// Who decides when it goes on.
    #[serde(flatten)]
    pub mode: RotationMode,
    /// When the new authority was made.
    pub started_at: Timestamp,
    /// When the phase began.
    pub phase_since: Timestamp,
}

impl Rotation {
    /// Where an automatic rotation goes next, and when at the earliest.
    pub fn next_phase(&self) -> Option<(Phase, Timestamp)> {
        let RotationMode::Automatic { grace } = self.mode else { return None };
        let next = self.phase.possible().first().filter(|_| self.phase != Phase::Standby)?;
        Some((*next, self.phase_since.checked_add(grace / 3).unwrap_or(Timestamp::MAX)))
    }

    /// When an automatic rotation goes on at the earliest.
    pub fn next_phase_at(&self) -> Option<Timestamp> {
        self.next_phase().map(|(_, at)| at)
    }
}

/// Why a rotation does not go where it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RotationError {
    /// The phases have an order, or somebody would be cut off.
    #[error("a rotation cannot go from {from} to {to}: from {from} it can go to {}", possible(*.from))]
    Impossible {
        /// The phase that it is in.
        from: Phase,
        /// The phase asked for.
        to: Phase,
    },
    /// The new authority could not be made.
    #[error(transparent)]
    Authority(#[from] Error),
}

fn possible(from: Phase) -> String {
    from.possible().iter().map(|phase| phase.as_str()).collect::<Vec<_>>().join(" or ")
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(length.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_secs)
    }
}
