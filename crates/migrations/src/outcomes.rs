//! Where each migration stands: what this server does, over what the history says. The runner tells the former, the
//! watch on the history the latter, so that every server knows what any of them did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Outcome, Registry};

/// Who is told of every change of an outcome.
pub(crate) type Observer = Arc<dyn Fn(u32, Outcome) + Send + Sync>;

/// The outcomes of the migrations that this server knows.
pub(crate) struct Outcomes {
    observe: Observer,
    standings: Mutex<BTreeMap<u32, Standing>>,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    /// Whether this server applies it now.
    running: bool,
    /// How it stands apart from that.
    settled: Outcome,
}

impl Standing {
    fn outcome(self) -> Outcome {
        if self.running { Outcome::Running } else { self.settled }
    }
}

impl Outcomes {
    pub(crate) fn new(registry: &Registry, observe: Observer) -> Self {
        let pending = Standing { running: false, settled: Outcome::Pending };
        let standings: BTreeMap<_, _> =
            registry.iter().map(|migration| (migration.number, pending)).collect();
        for number in standings.keys() {
            observe(*number, Outcome::Pending);
        }
        Self { observe, standings: Mutex::new(standings) }
    }

    /// What this server did.
    pub(crate) fn set(&self, number: u32, outcome: Outcome) {
        self.change(number, |standing| match outcome {
            Outcome::Running => Standing { running: true, ..standing },
            settled => Standing { running: false, settled },
        });
    }

    /// This server applies nothing any more, however its run ended.
    pub(crate) fn stop_running(&self) {
        let numbers: Vec<u32> = self.standings().keys().copied().collect();
        for number in numbers {
            self.change(number, |standing| Standing { running: false, ..standing });
        }
    }

    /// What the history says: whether it succeeded, or nothing.
    pub(crate) fn learn(&self, number: u32, success: Option<bool>) {
        self.change(number, |standing| match (success, standing.settled) {
            (Some(true), _) => Standing { settled: Outcome::Success, ..standing },
            (Some(false), _) => Standing { settled: Outcome::Failure, ..standing },
            // A server that could not write its record has failed all the same.
            (None, Outcome::Failure) => standing,
            (None, _) => Standing { settled: Outcome::Pending, ..standing },
        });
    }

    fn standings(&self) -> MutexGuard<'_, BTreeMap<u32, Standing>> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observers are called under the lock, so that they see changes in their order.
    fn change(&self, number: u32, next: impl FnOnce(Standing) -> Standing) {
        let mut standings = self.standings();
        let Some(standing) = standings.get_mut(&number) else { return };
        let before = standing.outcome();
        *standing = next(*standing);
        if standing.outcome() != before {
            (self.observe)(number, standing.outcome());
        }
    }
}
