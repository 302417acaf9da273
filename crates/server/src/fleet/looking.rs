use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use refit_types::{HostId, Instance, Version};

use super::Fleet;

/// Hosts that are looked at before those who write may have their turn.
const AT_ONCE: usize = 1000;

/// How many hosts run which version, counted as records change: nobody has to walk the fleet for it. Hosts
/// that never reported run none.
type Versions = BTreeMap<Option<Version>, u64>;

/// What can be said of all hosts without looking at any.
#[derive(Debug, Default)]
pub(super) struct Tally {
    versions: Mutex<Versions>,
    changes: AtomicU64,
}

fn version_of(instance: &Instance) -> Option<&Version> {
    instance.report.as_ref().map(|report| &report.version)
}

impl Tally {
    /// Takes in what became of one record.
    pub(super) fn changed(&self, before: Option<&Instance>, after: Option<&Instance>) {
        if let (Some(before), Some(after)) = (before, after) {
            let is_only_seen = before.report == after.report
                && before.server == after.server
                && before.upgrade == after.upgrade
                && before.hostname == after.hostname;
            if is_only_seen {
                return;
            }
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        let (was, is) = (before.map(version_of), after.map(version_of));
        if was == is {
            return;
        }
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(was) = was {
            let was = was.cloned();
            match versions.get_mut(&was) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(versions.remove(&was)),
            }
        }
        if let Some(is) = is {
            *versions.entry(is.cloned()).or_default() += 1;
        }
    }

    /// Counts anew.
    pub(super) fn reloaded<'a>(&self, all: impl Iterator<Item = &'a Instance>) {
        let mut counted = Versions::new();
        all.for_each(|instance| *counted.entry(version_of(instance).cloned()).or_default() += 1);
        *self.versions.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Fleet {
    /// How many hosts run which version.
    pub(crate) fn versions(&self) -> BTreeMap<Option<Version>, u64> {
        self.tally.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts up whenever a host comes, goes, or says something new.
    pub(crate) fn changes(&self) -> u64 {
        self.tally.changes.load(Ordering::Relaxed)
    }

    /// Whether every record was read once.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Shows the hosts behind `after` in the order of their UUIDs, some at a time, until `look` has seen
    /// enough. Records change in between; none of them is shown twice.
    pub(crate) fn walk(
        &self,
        mut after: Option<HostId>,
        mut look: impl FnMut(&[&Arc<Instance>]) -> ControlFlow<()>,
    ) {
        loop {
            let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            let some = hosts.range((start, Bound::Unbounded)).take(AT_ONCE);
            let some: Vec<&Arc<Instance>> = some.map(|(_, known)| &known.instance).collect();
            let Some(last) = some.last() else { return };
            after = Some(last.host_id);
            if look(&some).is_break() || some.len() < AT_ONCE {
                return;
            }
        }
    }
}
