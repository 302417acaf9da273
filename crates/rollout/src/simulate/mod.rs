//! Simulates a rollout: runs the real engine over simulated hosts and a simulated clock, so that a week of a fleet
//! passes in seconds.

mod behaviour;
mod run;
mod store;
mod svg;
mod text;
mod timeline;

use jiff::Timestamp;

use crate::{Cohort, Plan};

pub use behaviour::{Behaviour, NotAShare, Share};
pub use timeline::{GroupTimeline, Outcomes, Sample, Timeline};

/// More hosts than this are refused, before memory runs out.
pub const MAX_HOSTS: u32 = 10_000_000;

/// A simulation beyond a year says nothing that one of a year does not.
pub const MAX_DAYS: u32 = 366;

/// A rollout to be simulated.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// What is rolled out, how, and where to.
    pub plan: Plan,
    /// When it begins.
    pub start: Timestamp,
    /// The hosts.
    pub fleet: Vec<Cohort>,
    /// How they respond to an update.
    pub behaviour: Behaviour,
    /// Stop after so many days, even if more is to come.
    pub days: u32,
}

/// Why a simulation was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(String);

impl Simulation {
    /// Runs it; the same simulation always gives the same timeline.
    pub fn run(&self) -> Result<Timeline, Impossible> {
        let hosts: u64 = self.fleet.iter().map(|cohort| u64::from(cohort.count)).sum();
        if hosts > MAX_HOSTS.into() {
            return Err(Impossible(format!("there are {hosts} hosts; at most {MAX_HOSTS} can be simulated")));
        }
        if !(1..=MAX_DAYS).contains(&self.days) {
            return Err(Impossible(format!("{} days cannot be simulated; expected 1-{MAX_DAYS}", self.days)));
        }
        match self.behaviour.validation_error() {
            Some(error) => Err(Impossible(error)),
            None => Ok(run::Run::new(self).until_the_end()),
        }
    }
}
