//! Hosts by version and the number of changes, updated by the owner of the fleet's state with every record, so that no
//! request has to scan the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use refit_types::{HostRecord, Version};

/// Hosts by the version that they run. Hosts that never reported run none.
pub(crate) type Versions = BTreeMap<Option<Version>, u64>;

/// Counts over all hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    pub(crate) versions: Arc<Versions>,
    /// Increases whenever a host joins, leaves, or reports something new.
    pub(crate) changes: u64,
}

fn version_of(host_record: &HostRecord) -> Option<&Version> {
    host_record.report.as_ref().map(|report| &report.version)
}

impl Counters {
    /// Applies the change of one record.
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
