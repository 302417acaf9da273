//! The rollout as an operator would work it out on paper: everything is counted anew from all records, nothing
//! is indexed, and no line is shared with the engine.

mod answers;
mod calendar;

use jiff::{SignedDuration, Timestamp};
use refit_types::{
    ClusterMaintenanceConfig, Group, GroupRecord, HostLimit, HostRecord, Outcome, Percent, RolloutRecord,
    Schedule, Selector, Upgrade, Version,
};

pub use calendar::{next_opening, open_window};

const EXPIRY: i64 = 30;
const POLLING: i64 = 600;
const SETTLES: i64 = 900;

const MILLION: u64 = 1_000_000;

/// That share of the members, in millionths of a host.
fn parts(share: Percent, members: u32) -> u64 {
    u64::from(members) * u64::from(share.millionths())
}

/// Whether so many hosts are more than a threshold allows.
pub fn exceeds(count: u32, allowed: HostLimit, members: u32) -> bool {
    match allowed {
        HostLimit::Hosts(hosts) => count > hosts,
        HostLimit::Share(share) => u64::from(count) * MILLION > parts(share, members),
    }
}

/// The stored settings of operators.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub config: ClusterMaintenanceConfig,
    pub rollout: RolloutRecord,
}

/// Everything there is to know of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recount {
    pub members: u32,
    pub removed: u32,
    pub in_flight: u32,
    pub upgraded: u32,
    pub failed: u32,
    pub timed_out: u32,
    pub held: u32,
    pub away: u32,
    pub ready: u32,
    pub newcomers: u32,
    /// Members that have the version, and of whom that is not stored yet.
    pub uncounted: u32,
    /// Those in flight that are not members yet.
    pub guests: u32,
    /// Those in flight that were told in an earlier epoch.
    pub carried: u32,
}

/// What a member is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    InFlight,
    Upgraded,
    Failed,
    TimedOut,
    /// On the version, which is not stored yet.
    HasIt,
    Held,
    Away,
    Ready,
}

/// A member that has left the fleet: what was last stored of it.
#[derive(Debug, Clone)]
pub struct Gone {
    pub upgrade: Upgrade,
}

pub fn after(from: Timestamp, seconds: i64) -> Timestamp {
    from + SignedDuration::from_secs(seconds)
}

/// Since when no server hears the host.
pub fn lost_since(host_record: &HostRecord) -> Option<Timestamp> {
    if host_record.server.is_some() { None } else { Some(host_record.last_seen) }
}

/// Whether the host is heard, or was less than half a minute ago.
pub fn is_live(host_record: &HostRecord, now: Timestamp) -> bool {
    lost_since(host_record).is_none_or(|since| now < after(since, EXPIRY))
}

/// The highest attempt that anyone knows of: the record, the host's agent, or its updater.
pub fn last_attempt(host_record: &HostRecord) -> u64 {
    let stored = host_record.upgrade.iter().map(|upgrade| upgrade.attempt);
    let acknowledged = host_record.report.iter().map(|report| report.hint_acknowledged);
    let updater = host_record.report.iter().filter_map(|report| report.updater.as_ref());
    let told = updater.flat_map(|updater| {
        let undone = updater.last_failure.as_ref().map(|failure| failure.attempt);
        let obstacle = updater.obstacle.as_ref().map(|obstacle| obstacle.attempt);
        let targets = [updater.held_target.as_ref(), updater.called_off.as_ref()];
        targets.into_iter().flatten().map(|target| target.attempt).chain(undone).chain(obstacle)
    });
    stored.chain(acknowledged).chain(told).max().unwrap_or(0)
}

impl Settings {
    pub fn groups(&self) -> &[Group] {
        match self.rollout.schedule {
            Schedule::Regular => &self.config.agent_auto_update_groups.regular,
            Schedule::Critical => &self.config.agent_auto_update_groups.critical,
            Schedule::Immediate => &[],
        }
    }

    pub fn group(&self, name: &str) -> &Group {
        self.groups().iter().find(|group| group.name.as_str() == name).unwrap()
    }

    /// The host's upgrade in this epoch, if its group exists.
    pub fn upgrade_of<'a>(&self, host_record: &'a HostRecord) -> Option<&'a Upgrade> {
        let upgrade = host_record.upgrade.as_deref()?;
        let is_known = self.groups().iter().any(|group| group.name == upgrade.group_name);
        (upgrade.epoch == self.rollout.epoch && is_known).then_some(upgrade)
    }

    /// What is stored of a host that is no member and was given a slot in this epoch all the same.
    pub fn guest_of<'a>(&self, host_record: &'a HostRecord) -> Option<&'a Upgrade> {
        let upgrade = host_record.upgrade.as_deref()?;
        let is_guest = upgrade.newcomer.is_some_and(|newcomer| newcomer.epoch == self.rollout.epoch);
        let is_known = self.groups().iter().any(|group| group.name == upgrade.group_name);
        (is_guest && is_known && self.upgrade_of(host_record).is_none()).then_some(upgrade)
    }

    /// What was done with the host in this epoch, as a member or before that.
    pub fn present_of<'a>(&self, host_record: &'a HostRecord) -> Option<&'a Upgrade> {
        self.upgrade_of(host_record).or_else(|| self.guest_of(host_record))
    }

    /// Whether it has a slot in this epoch.
    pub fn has_slot(&self, host_record: &HostRecord) -> bool {
        let upgrade = self.present_of(host_record);
        upgrade.is_some_and(|upgrade| upgrade.start_time.is_some() && upgrade.outcome.is_none())
    }

    /// Whether it has a slot in this epoch because it was told in an earlier one.
    pub fn is_carried(&self, host_record: &HostRecord) -> bool {
        self.has_slot(host_record) && self.present_of(host_record).is_some_and(|upgrade| upgrade.carried)
    }

    /// Whether the host has told how its last attempt ended.
    pub fn has_settled(&self, host_record: &HostRecord) -> bool {
        let (Some(upgrade), Some(report)) = (host_record.upgrade.as_deref(), host_record.report.as_ref())
        else {
            return false;
        };
        let mut told = Vec::new();
        if let Some(updater) = &report.updater {
            told.extend(updater.last_failure.as_ref().map(|failure| failure.attempt));
            told.extend(updater.called_off.as_ref().map(|target| target.attempt));
            told.extend(updater.held_target.as_ref().map(|target| target.attempt));
        }
        let is_there = upgrade.version.as_deref() == Some(&report.version) && !is_on_trial(host_record);
        is_there || upgrade.attempt > 0 && told.contains(&upgrade.attempt)
    }

    /// When a host that was told in an earlier epoch is no longer waited for.
    pub fn settles_by(&self, host_record: &HostRecord) -> Option<Timestamp> {
        let group = self.group(self.group_of(host_record)?);
        let own = i64::from(group.jitter_seconds) + i64::from(group.timeout_seconds);
        let polling = if self.has_acknowledged(host_record) { 0 } else { POLLING };
        let deadline = after(host_record.upgrade.as_ref()?.start_time?, own + polling);
        Some(deadline.min(after(self.rollout.began_at, SETTLES)))
    }

    /// Whether it was told in an earlier epoch, may still be under way, and has no slot in this one.
    pub fn is_unsettled(&self, host_record: &HostRecord, now: Timestamp) -> bool {
        let Some(upgrade) = host_record.upgrade.as_deref() else { return false };
        self.present_of(host_record).is_none()
            && upgrade.epoch < self.rollout.epoch
            && upgrade.outcome.is_none()
            && !self.has_settled(host_record)
            && self.settles_by(host_record).is_some_and(|by| now < by)
    }

    /// Whether a host that is no member could start at that moment.
    pub fn could_be_guest(&self, host_record: &HostRecord, now: Timestamp) -> bool {
        self.present_of(host_record).is_none()
            && lost_since(host_record).is_none()
            && !self.has_version(host_record)
            && !self.is_held(host_record)
            && !self.is_unsettled(host_record, now)
    }

    /// The name of the host's group: the one it is a member of, or the first that takes it.
    pub fn group_of(&self, host_record: &HostRecord) -> Option<&str> {
        if let Some(upgrade) = self.present_of(host_record) {
            let name = upgrade.group_name.as_str();
            return self.groups().iter().map(|group| group.name.as_str()).find(|known| *known == name);
        }
        host_record.report.as_ref()?;
        let takes = |group: &&Group| takes(&group.agents, host_record);
        self.groups().iter().find(takes).map(|group| group.name.as_str())
    }

    pub fn runs_version(&self, host_record: &HostRecord) -> bool {
        host_record.report.as_ref().is_some_and(|report| report.version == self.rollout.version)
    }

    /// Whether it runs the version, and its updater does not take another one for installed.
    pub fn has_version(&self, host_record: &HostRecord) -> bool {
        self.runs_version(host_record) && !is_on_trial(host_record)
    }

    pub fn is_held(&self, host_record: &HostRecord) -> bool {
        let Some(updater) = host_record.report.as_ref().and_then(|report| report.updater.as_ref()) else {
            return false;
        };
        let is_pinned = match &updater.pinned_version {
            Some(pinned) => *pinned != self.rollout.version,
            None => false,
        };
        // A hold is about one version and one attempt; older updaters say only what they were asked for.
        let is_about_this = match &updater.held_target {
            Some(target) => {
                let attempt = host_record.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt);
                target.version == self.rollout.version && (target.attempt == 0 || target.attempt == attempt)
            }
            None => updater.agent_version_desired.as_ref() == Some(&self.rollout.version),
        };
        updater.held.is_some() && is_about_this || is_pinned || !updater.agent_updates_enabled
    }

    pub fn has_acknowledged(&self, host_record: &HostRecord) -> bool {
        let attempt = host_record.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt);
        attempt != 0 && host_record.report.as_ref().is_some_and(|report| report.hint_acknowledged == attempt)
    }

    /// Whether nobody may go in this group: an operator paused it, or everything.
    pub fn is_paused(&self, record: &GroupRecord) -> bool {
        self.rollout.paused.is_some() || record.paused.is_some()
    }

    /// Whether nobody is told to go: it is paused, or updates are switched off.
    pub fn is_stopped(&self, record: &GroupRecord) -> bool {
        self.is_paused(record) || !self.config.agent_auto_update.enabled
    }

    /// Whether the updater says that this very attempt was called off before anything was switched.
    pub fn is_called_off(&self, host_record: &HostRecord) -> bool {
        let attempt = host_record.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt);
        let updater = host_record.report.as_ref().and_then(|report| report.updater.as_ref());
        let target = updater.and_then(|updater| updater.called_off.as_ref());
        attempt != 0 && target.is_some_and(|target| target.attempt == attempt)
    }

    /// Whether a start is of no use once the window is closed or nobody may go: its host does not know of it. One that does
    /// may have switched, whatever operators do.
    pub fn goes_in_vain(&self, host_record: &HostRecord) -> bool {
        !self.has_acknowledged(host_record)
    }

    /// Whether the updater says that it undid this very attempt at this very version. A host that could not download,
    /// could not back up or could not ask has not tried the version, whatever an older updater calls it.
    pub fn is_undone(&self, host_record: &HostRecord) -> bool {
        let attempt = host_record.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt);
        let updater = host_record.report.as_ref().and_then(|report| report.updater.as_ref());
        let failure = updater.and_then(|updater| updater.last_failure.as_ref());
        failure.is_some_and(|failure| {
            let was_tried = !["find", "download", "backup"].contains(&failure.step.as_str());
            attempt != 0 && failure.attempt == attempt && failure.version == self.rollout.version && was_tried
        })
    }

    /// What a member of a group that is in that round is doing.
    pub fn doing(&self, host_record: &HostRecord, round: u32) -> Option<Doing> {
        let upgrade = self.upgrade_of(host_record)?;
        let is_unfinished_again = |then: u32| then < round;
        Some(match &upgrade.outcome {
            Some(Outcome::Upgraded { .. }) => Doing::Upgraded,
            Some(Outcome::Failed { .. }) if !is_unfinished_again(upgrade.round) => Doing::Failed,
            Some(Outcome::TimedOut { .. }) if !is_unfinished_again(upgrade.round) => Doing::TimedOut,
            None if upgrade.start_time.is_some() => Doing::InFlight,
            _ if self.has_version(host_record) => Doing::HasIt,
            _ if self.is_held(host_record) => Doing::Held,
            _ if lost_since(host_record).is_some() => Doing::Away,
            _ => Doing::Ready,
        })
    }

    /// Counts a group from scratch.
    pub fn recount(&self, name: &str, round: u32, hosts: &[&HostRecord], gone: &[Gone]) -> Recount {
        let mut count = Recount::default();
        for gone in gone {
            if gone.upgrade.epoch == self.rollout.epoch && gone.upgrade.group_name.as_str() == name {
                count.members += 1;
                count.removed += 1;
            }
        }
        for host in hosts.iter().filter(|host| self.group_of(host) == Some(name)) {
            count.carried += u32::from(self.is_carried(host));
            let Some(doing) = self.doing(host, round) else {
                if self.has_slot(host) {
                    count.in_flight += 1;
                    count.guests += 1;
                } else {
                    count.newcomers += u32::from(lost_since(host).is_none());
                }
                continue;
            };
            count.members += 1;
            *(match doing {
                Doing::InFlight => &mut count.in_flight,
                Doing::Upgraded => &mut count.upgraded,
                Doing::Failed => &mut count.failed,
                Doing::TimedOut => &mut count.timed_out,
                Doing::HasIt => &mut count.uncounted,
                Doing::Held => &mut count.held,
                Doing::Away => &mut count.away,
                Doing::Ready => &mut count.ready,
            }) += 1;
        }
        count
    }

    /// How many hosts may be in flight.
    pub fn limit(&self, name: &str, members: u32) -> u32 {
        match self.group(name).max_in_flight {
            HostLimit::Hosts(hosts) => hosts,
            HostLimit::Share(share) => {
                let enough = |slots: u32| u64::from(slots) * MILLION >= parts(share, members);
                (0..=members).find(|slots| enough(*slots)).unwrap()
            }
        }
    }

    /// All groups that must have succeeded before that one.
    pub fn required(&self, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        for required in &self.group(name).requires {
            all.extend(self.required(required.as_str()));
            all.push(required.to_string());
        }
        all
    }

    /// Whether hosts of the group may start by the clock: in its hours, or in those an operator gave it.
    pub fn is_open(&self, name: &str, record: &GroupRecord, now: Timestamp) -> bool {
        let by_hand = record.run.is_some_and(|run| run.start <= now && now < run.end);
        by_hand || open_window(&self.group(name).window, now).is_some()
    }

    /// When the started host has timed out. After an outage it gets the time to come back and report.
    pub fn times_out_at(&self, host_record: &HostRecord, reachable_since: Timestamp) -> Option<Timestamp> {
        let upgrade = self.present_of(host_record)?;
        let group = self.group(upgrade.group_name.as_str());
        let own = i64::from(group.jitter_seconds) + i64::from(group.timeout_seconds);
        let polling = if self.has_acknowledged(host_record) { 0 } else { POLLING };
        Some(after(upgrade.start_time?, own + polling).max(after(reachable_since, EXPIRY)))
    }

    /// When the started host has failed because nobody hears it.
    pub fn is_lost_at(&self, host_record: &HostRecord, reachable_since: Timestamp) -> Option<Timestamp> {
        let upgrade = self.present_of(host_record)?;
        let group = self.group(upgrade.group_name.as_str());
        let since = lost_since(host_record)?.max(upgrade.start_time?).max(reachable_since);
        Some(after(since, EXPIRY + i64::from(group.failure_seconds)))
    }

    /// Whether that many members that are away may be left behind.
    pub fn may_leave(&self, name: &str, hosts: &[&HostRecord], record: &GroupRecord, now: Timestamp) -> bool {
        let away = hosts.iter().filter(|host| {
            self.group_of(host) == Some(name) && self.doing(host, record.round) == Some(Doing::Away)
        });
        let since: Vec<Timestamp> = away.filter_map(|host| lost_since(host)).collect();
        let all_for_long = since.iter().all(|since| after(*since, POLLING) <= now);
        let allowed = self.group(name).max_timeout_before_halt;
        all_for_long && !exceeds(since.len() as u32, allowed, record.members)
    }

    /// Whether no member runs the version, and none is going there or could now.
    pub fn is_stuck(&self, record: &GroupRecord, count: &Recount) -> bool {
        let is_over = count.in_flight - count.guests + count.ready + count.uncounted == 0;
        record.sealed && count.upgraded == 0 && is_over
    }
}

/// Whether the updater may still undo what runs: it takes another version for installed, or it installed this one while no
/// agent ran, over another to which it can go back.
pub fn is_on_trial(host_record: &HostRecord) -> bool {
    let Some(report) = host_record.report.as_ref() else { return false };
    let Some(updater) = report.updater.as_ref().filter(|updater| updater.agent_updates_enabled) else {
        return false;
    };
    let is_another = match &updater.agent_version_installed {
        Some(installed) => *installed != report.version,
        None => false,
    };
    is_another || updater.unproved && updater.agent_version_previous.is_some()
}

/// Knows one form of expression only: `labels["role"] == "x"`.
pub fn takes(selector: &Selector, host_record: &HostRecord) -> bool {
    let Some(report) = &host_record.report else { return false };
    let role = |expression: &refit_types::Expression| {
        let source = expression.source().to_owned();
        source.split('"').nth(3).map(str::to_owned).unwrap()
    };
    let node = selector.node_labels_expression.as_ref().map(role);
    let agent = selector.instance_labels_expression.as_ref().map(role);
    node.is_none_or(|role| report.node_labels.get("role") == Some(&role))
        && agent.is_none_or(|role| report.instance_labels.get("role") == Some(&role))
}

/// Whether a change of the settings begins a new epoch.
pub fn begins_an_epoch(
    before: &Settings,
    version: &Version,
    schedule: Schedule,
    config: &ClusterMaintenanceConfig,
) -> bool {
    let rollout = RolloutRecord { version: version.clone(), schedule, ..before.rollout.clone() };
    let settings = Settings { config: config.clone(), rollout };
    let gist = |settings: &Settings| -> Vec<_> {
        let groups = settings.groups().iter();
        groups.map(|group| (group.name.clone(), group.agents.clone(), group.requires.clone())).collect()
    };
    before.rollout.version != *version
        || before.rollout.schedule != schedule
        || gist(before) != gist(&settings)
}
