//! How many hosts run which version, and how often anything changed: counted by the owner of the fleet's state as
//! records change, so that nobody walks the fleet for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use refit_types::{HostRecord, Version};

/// Hosts by the version that they run. Hosts that never reported run none.
pub(crate) type Versions = BTreeMap<Option<Version>, u64>;

/// What can be said of all hosts without looking at any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    pub(crate) versions: Arc<Versions>,
    /// Counts up whenever a host comes, goes, or says something new.
    pub(crate) changes: u64,
}

fn version_of(instance: &HostRecord) -> Option<&Version> {
    instance.report.as_ref().map(|report| &report.version)
}

impl Counters {
    /// Takes in what became of one record.
    pub(crate) fn changed(&mut self, before: Option<&HostRecord>, after: Option<&HostRecord>) {
        if let (Some(before), Some(after)) = (before, after) {
            let is_only_seen = before.report == after.report
                && before.server == after.server
                && before.upgrade == after.upgrade
                && before.hostname == after.hostname;
            if is_only_seen {
                return;
            }
        }
        self.changes += 1;
        let (was, is) = (before.map(version_of), after.map(version_of));
        if was == is {
            return;
        }
        let versions = Arc::make_mut(&mut self.versions);
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
}
