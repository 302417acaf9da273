//! The closing text of the demo: how the rollout ended, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use refit_types::Version;

use super::fleet::GROUPS;
use super::snapshot::{Seen, Snapshot};
use crate::output::{self, counted};

/// What the closing text needs from the snapshots of a rollout.
#[derive(Debug, Default)]
pub(super) struct Narrator {
    most_in_flight: BTreeMap<String, u32>,
}

impl Narrator {
    pub(super) fn sees(&mut self, snapshot: &Snapshot) {
        for group in &snapshot.groups {
            let most = self.most_in_flight.entry(group.name.clone()).or_default();
            *most = group.in_flight.max(*most);
        }
    }

    /// The text if all hosts have the new version.
    pub(super) fn success(&self, snapshot: &Snapshot, target: &Version, took: Duration) -> String {
        let most = |name: &str| self.most_in_flight.get(name).copied().unwrap_or_default();
        let counts = snapshot.groups.iter().map(|group| {
            format!("{} of {} in {}", most(&group.name), counted(group.hosts.into(), "host"), group.name)
        });
        format!(
            "All {} run {target}, {} s after it was chosen: {}.\nSeen in flight at the same time, at most: {}.",
            counted(snapshot.hosts.len() as u64, "host"),
            took.as_secs(),
            GROUPS.join(", then "),
            counts.collect::<Vec<_>>().join(", ")
        )
    }

    /// The text if some do not.
    pub(super) fn failure(
        &self,
        snapshot: &Snapshot,
        old: &Version,
        target: &Version,
        again: &str,
    ) -> String {
        let mut lines = Vec::new();
        for host in &snapshot.hosts {
            let Some(failure) = host.failure.as_ref().filter(|failure| failure.version == *target) else {
                continue;
            };
            let name = &host.name;
            lines.push(format!(
                "{name} was told to upgrade to {target}. Its updater installed and started that, and undid it at \
                 the step {:?}: {}.",
                failure.step, failure.reason
            ));
            let agent = failure.agent.as_deref().map(output::failed_agent).unwrap_or_default();
            lines.extend(agent.into_iter().map(|line| format!("    {line}")));
            if let Some(version) = host.version.as_ref().filter(|_| host.is_connected) {
                lines.push(format!(
                    "So {name} runs {version} again, with the database as it was before, and is connected."
                ));
            }
        }
        for group in snapshot.groups.iter().filter(|group| group.state == "halted") {
            let why = group.waiting.strip_prefix("halted: ").unwrap_or(&group.waiting);
            lines.push(format!("The group {} halted: {why}.", group.name));
        }
        let spared: Vec<&Seen> = snapshot
            .hosts
            .iter()
            .filter(|host| host.version.as_ref() == Some(old) && !host.is_failed())
            .collect();
        if !spared.is_empty() {
            let names: Vec<&str> = spared.iter().map(|host| host.name.as_str()).collect();
            lines.push(format!("Spared, still on {old}, never told to upgrade: {}.", names.join(", ")));
        }
        let upgraded = snapshot.hosts.iter().filter(|host| host.version.as_ref() == Some(target));
        let upgraded: Vec<&str> = upgraded.map(|host| host.name.as_str()).collect();
        if !upgraded.is_empty() {
            lines.push(format!("On {target}, because it works there: {}.", upgraded.join(", ")));
        }
        lines.push(format!("An operator would mend the build and try again: {again}"));
        lines.join("\n")
    }
}
