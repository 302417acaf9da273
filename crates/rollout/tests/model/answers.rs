//! What `find` must answer, to hosts that are known and to those that are not, as an operator would work it out.

use jiff::Timestamp;
use refit_types::{Group, GroupRecord, GroupState, HostRecord, Schedule, Version};

use super::{Settings, after, lost_since, open_window};

impl Settings {
    /// Whether any group has halted.
    pub fn has_halted(&self, record: impl Fn(&str) -> GroupRecord) -> bool {
        let is_halted = |group: &Group| matches!(record(group.name.as_str()).state, GroupState::Halted(_));
        self.groups().iter().any(is_halted)
    }

    /// Whether everything that this epoch was to bring about is there. Where there are no groups, those count who are
    /// there and would take the version, as long as they are most of the fleet.
    pub fn has_ended_well(&self, hosts: &[&HostRecord], record: impl Fn(&str) -> GroupRecord) -> bool {
        let records: Vec<GroupRecord> =
            self.groups().iter().map(|group| record(group.name.as_str())).collect();
        if !records.is_empty() {
            let succeeded = records.iter().filter(|record| record.state == GroupState::Succeeded).count();
            let upgraded: u32 = records.iter().map(|record| record.upgraded).sum();
            return succeeded == records.len() && upgraded != 0;
        }
        let (have_it, others): (Vec<&HostRecord>, Vec<&HostRecord>) =
            hosts.iter().partition(|host| self.has_version(host));
        let would_take_it = |host: &&HostRecord| lost_since(host).is_none() && !self.is_held(host);
        have_it.len() > others.len() && !others.iter().any(would_take_it)
    }

    /// The version that a host is named of which there is no record; none if it should install nothing.
    pub fn named_to_strangers(&self, record: impl Fn(&str) -> GroupRecord) -> Option<&Version> {
        match self.rollout.paused.is_some() || self.has_halted(record) {
            false => Some(&self.rollout.version),
            true => self.rollout.last_good.as_ref(),
        }
    }

    /// What `find` must answer: whether to go, over how many seconds, as which attempt.
    pub fn answer(
        &self,
        host_record: Option<&HostRecord>,
        record: impl Fn(&str) -> GroupRecord,
        now: Timestamp,
    ) -> (bool, u32, u64) {
        let policy = &self.config.agent_auto_update;
        // Paused means that nobody is told, whether its start is stored or not. Nobody knows whether a host that is not known
        // belongs to a group that has halted.
        let is_held_up = host_record.is_none() && self.has_halted(&record);
        let is_on = policy.enabled && self.rollout.paused.is_none() && !is_held_up;
        let by_policy = match self.rollout.schedule {
            Schedule::Immediate => return (is_on, policy.immediate.jitter_seconds, 0),
            Schedule::Regular => &policy.regular,
            Schedule::Critical => &policy.critical,
        };
        let Some((host_record, name)) =
            host_record.and_then(|host_record| Some((host_record, self.group_of(host_record)?)))
        else {
            let is_open = open_window(&by_policy.window, now).is_some();
            return (is_on && is_open, by_policy.jitter_seconds, 0);
        };
        let (group, record) = (self.group(name), record(name));
        let jitter = group.jitter_seconds;
        let is_halted = matches!(record.state, GroupState::Halted(_));
        let upgrade = self.present_of(host_record).filter(|_| !self.is_carried(host_record));
        let Some((upgrade, started)) = upgrade.and_then(|upgrade| Some((upgrade, upgrade.start_time?)))
        else {
            return (false, jitter, 0);
        };
        let in_window = record
            .window
            .is_some_and(|window| window.start <= now && now < window.end && started >= window.start);
        let under_way = self.has_acknowledged(host_record)
            && now < after(started, i64::from(jitter) + i64::from(group.timeout_seconds));
        let is_told = is_on && record.paused.is_none() && !is_halted && (in_window || under_way);
        (is_told, jitter, if is_told { upgrade.attempt } else { 0 })
    }
}
