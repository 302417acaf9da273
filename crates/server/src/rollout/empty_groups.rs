//! Which groups of a configuration select none of the known hosts: their author should know, because such a group does
//! not succeed.

use refit_rollout::Plan;
use refit_types::{ClusterMaintenanceConfig, Group, RolloutRecord, Schedule};

use super::Rollouts;
use crate::fleet::{FleetView, LOADED_WITHIN};

/// The document is stored by then, so that this cannot be an error.
const NOT_LOADED: &str = "the hosts of the fleet have not all been read yet: nobody knows which groups select none of \
                          them; see `refitctl autoupdate plan` in a moment";

impl Rollouts {
    /// One sentence for each group that selects no known host. Waits until all hosts are known, and says so if they are
    /// not. Expressions are evaluated for the whole fleet, so away from the threads that answer.
    pub(crate) async fn warn_of_empty_groups(&self, config: ClusterMaintenanceConfig) -> Vec<String> {
        if !self.fleet.until_loaded(LOADED_WITHIN).await {
            return vec![NOT_LOADED.into()];
        }
        let view = self.fleet.view();
        tokio::task::spawn_blocking(move || warnings(&view, &config)).await.unwrap_or_default()
    }
}

fn warnings(view: &FleetView, config: &ClusterMaintenanceConfig) -> Vec<String> {
    let hosts = view.hosts.len();
    if hosts == 0 {
        return Vec::new();
    }
    let empty = [Schedule::Regular, Schedule::Critical].into_iter().flat_map(|schedule| {
        let groups = config.groups(schedule).iter().zip(selects(view, config, schedule));
        groups.filter(|(group, selects)| !selects && !group.allow_empty).map(|(group, _)| group)
    });
    empty.map(|group: &Group| format!("{} selects none of {hosts} hosts", group.name)).collect()
}

/// Whether each group of the schedule takes a host.
fn selects(view: &FleetView, config: &ClusterMaintenanceConfig, schedule: Schedule) -> Vec<bool> {
    let mut selects = vec![false; config.groups(schedule).len()];
    let Ok(version) = env!("CARGO_PKG_VERSION").parse() else { return selects };
    let record = RolloutRecord::begun(0, String::new(), version, schedule, jiff::Timestamp::UNIX_EPOCH);
    let plan = Plan::new(&record, Default::default(), config);
    for (_, known) in view.hosts.iter() {
        let Some(report) = known.value.report.as_ref() else { continue };
        if let Some(group) = plan.group_of(&report.node_labels, &report.instance_labels) {
            selects[group] = true;
        }
        if selects.iter().all(|selects| *selects) {
            break;
        }
    }
    selects
}
