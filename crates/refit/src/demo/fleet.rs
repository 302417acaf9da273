//! The hosts and groups of the demo: where each host's root is, and what its agent's configuration says.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use refit_types::Version;
use refit_update::{Layout, Profile, RealDisk, active_version};
use serde_json::json;

use crate::exit::Failure;

/// The groups, each waiting for the one before.
pub(super) const GROUPS: [&str; 3] = ["canary", "staging", "production"];
/// The group whose new version does not work, if one is to be broken.
pub(super) const BROKEN: &str = "staging";

/// A host: a root of its own with everything in it that a machine would have.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) group: &'static str,
    pub(super) root: PathBuf,
    pub(super) log: PathBuf,
    layout: Layout,
}

/// Hosts for all groups: about a sixth, a third and a half of them.
pub(super) fn hosts(work_dir: &Path, count: usize) -> Vec<Host> {
    let canary = (count / 6).max(1);
    let staging = (count / 3).max(1);
    let sizes = [canary, staging, count.saturating_sub(canary + staging)];
    let members = GROUPS.into_iter().zip(sizes);
    let members = members.flat_map(|(group, size)| (1..=size).map(move |number| (group, number)));
    let host = |(at, (group, number)): (usize, (&'static str, usize))| {
        let root = work_dir.join(format!("h{}", at + 1));
        let layout = Layout::new(&root, &Profile::refit(), None);
        Host { name: format!("{group}{number}"), group, log: root.with_extension("log"), root, layout }
    };
    members.enumerate().map(host).collect()
}

/// The groups as an operator would write them. Updaters give a version more than a minute to prove itself: a host
/// that is silent for as long is not lost, and one that goes back is not late. Windows are open all day, and none
/// closes while somebody watches.
pub(super) fn groups(now: Timestamp) -> serde_json::Value {
    let start_hour = (now.to_zoned(TimeZone::UTC).hour() + 12) % 24;
    let group = |(at, name): (usize, &'static str)| {
        json!({
            "name": name,
            "agents": { "instance_labels_expression": format!("labels[\"group\"] == {name:?}") },
            "start_hour": start_hour,
            "window_hours": 24,
            "max_in_flight": if at == 0 { "100%" } else { "50%" },
            "timeout_seconds": 180,
            "failure_seconds": 120,
            "requires": GROUPS[..at].last().into_iter().collect::<Vec<_>>(),
        })
    };
    let groups: Vec<_> = GROUPS.into_iter().enumerate().map(group).collect();
    json!({
        "kind": "cluster_maintenance_config",
        "metadata": { "name": "cluster-maintenance-config", "description": "canary, then staging, then production" },
        "spec": { "agent_auto_update_groups": { "regular": groups } },
    })
}

impl Host {
    /// Makes the root, with the agent's configuration in it.
    pub(super) fn prepare(&self, proxy: &str, token: &str, pin: &str) -> Result<(), Failure> {
        let (path, group, name) = (self.layout.agent_config(), self.group, &self.name);
        let failed = |error| Failure::failed(format!("{}: {error}", path.display()));
        let folder = path.parent().unwrap_or(&self.root);
        DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        let config = json!({ "refit": {
            "nodename": name, "proxy": proxy, "token": token, "ca_pin": pin, "labels": { "group": group },
        } });
        let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.map_err(failed)?;
        file.write_all(crate::output::yaml(&config)?.as_bytes()).map_err(failed)
    }

    /// The version that its disk points to.
    pub(super) fn active(&self) -> Option<Version> {
        active_version(&RealDisk, &self.layout).ok().flatten()
    }

    /// Whether its updater is between two versions.
    pub(super) fn is_switching(&self) -> bool {
        self.layout.journal().exists()
    }
}

#[cfg(test)]
mod tests {
    use refit_types::Resource;

    use super::*;

    #[test]
    fn hosts_are_spread_over_the_groups() {
        let sizes = |count: usize| {
            let hosts = hosts(Path::new("/d"), count);
            assert_eq!(hosts.len(), count);
            GROUPS.map(|group| hosts.iter().filter(|host| host.group == group).count())
        };
        assert_eq!(sizes(3), [1, 1, 1]);
        assert_eq!(sizes(4), [1, 1, 2]);
        assert_eq!(sizes(6), [1, 2, 3]);
        assert_eq!(sizes(50), [8, 16, 26]);
    }

    #[test]
    fn the_groups_are_a_document_that_a_server_takes() {
        Resource::from_document(groups(Timestamp::UNIX_EPOCH)).unwrap();
    }
}
