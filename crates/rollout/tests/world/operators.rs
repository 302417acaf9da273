//! What random operators do in the property tests: change limits, windows, groups and versions, pause and run.

use refit_rollout::{fingerprint, mark_done, run_group};
use refit_types::{
    ClusterMaintenanceConfig, Expression, Group, GroupState, HostLimit, RolloutRecord, Schedule, Version,
};

use super::World;
use super::invariants::{EPOCH, Held, RUN, hold};
use crate::model::{Settings, after, begins_an_epoch};

/// What operators may do.
#[derive(Debug, Clone)]
pub enum OperatorStep {
    /// Another `max_in_flight`.
    Limit {
        group: u8,
        limit: HostLimit,
    },
    /// Other thresholds.
    Thresholds {
        group: u8,
        failed: HostLimit,
        timed_out: HostLimit,
    },
    /// Other hours.
    Hours {
        group: u8,
        start: u8,
        length: u8,
    },
    /// Other lengths of time.
    Times {
        group: u8,
        jitter: u16,
        timeout: u16,
        failure: u16,
    },
    Switch {
        on: bool,
    },
    Pause,
    Resume,
    PauseGroup {
        group: u8,
    },
    ResumeGroup {
        group: u8,
    },
    Run {
        group: u8,
    },
    /// A group in which nobody can be upgraded is declared done; otherwise nothing happens.
    MarkDone {
        group: u8,
    },
    /// A group may succeed without a member that runs the version, or not.
    AllowEmpty {
        group: u8,
        allowed: bool,
    },
    /// Another version: a new epoch, unless it is the same.
    Version {
        version: u8,
    },
    /// Other hosts in a group: a new epoch.
    Selector {
        group: u8,
        role: u8,
    },
    /// Another schedule: a new epoch, unless it is the same.
    Schedule {
        schedule: u8,
    },
    /// Two groups change places: a new epoch.
    Swap {
        group: u8,
    },
    /// A group requires one other, unless that closes a circle: a new epoch.
    Require {
        group: u8,
        other: u8,
    },
    /// A group requires nothing any more: a new epoch if it did.
    Free {
        group: u8,
    },
}

pub fn version(number: u8) -> Version {
    format!("15.1.{number}").parse().unwrap()
}

pub fn expression(role: u8) -> Expression {
    format!("labels[\"role\"] == \"r{}\"", role % 6).parse().unwrap()
}

impl World {
    pub fn operator_step(&mut self, step: &OperatorStep) -> Held {
        let mut config = self.settings().config.clone();
        let mut wanted = self.settings().rollout.version.clone();
        let mut schedule = self.settings().rollout.schedule;
        let groups = match schedule {
            Schedule::Critical => &mut config.agent_auto_update_groups.critical,
            _ => &mut config.agent_auto_update_groups.regular,
        };
        let count = groups.len();
        let has_records = schedule != Schedule::Immediate;
        let nth = |group: &u8| usize::from(*group) % count;
        match step {
            OperatorStep::Limit { group, limit } => {
                groups[nth(group)].max_in_flight = *limit;
            }
            OperatorStep::Thresholds { group, failed, timed_out } => {
                groups[nth(group)].max_failed_before_halt = *failed;
                groups[nth(group)].max_timeout_before_halt = *timed_out;
            }
            OperatorStep::Hours { group, start, length } => {
                groups[nth(group)].window.start_hour = start % 24;
                groups[nth(group)].window.window_hours = length % 24 + 1;
            }
            OperatorStep::Times { group, jitter, timeout, failure } => {
                let group: &mut Group = &mut groups[nth(group)];
                group.jitter_seconds = u32::from(jitter % 3601);
                group.timeout_seconds = u32::from(timeout % 871) + 30;
                group.failure_seconds = u32::from(failure % 901);
            }
            OperatorStep::Switch { on } => config.agent_auto_update.enabled = *on,
            OperatorStep::Pause => self.pause(true),
            OperatorStep::Resume => self.pause(false),
            OperatorStep::PauseGroup { .. }
            | OperatorStep::ResumeGroup { .. }
            | OperatorStep::Run { .. }
            | OperatorStep::MarkDone { .. }
                if !has_records => {}
            OperatorStep::PauseGroup { group } => self.pause_group(nth(group), true),
            OperatorStep::ResumeGroup { group } => self.pause_group(nth(group), false),
            OperatorStep::Run { group } => self.run(nth(group))?,
            OperatorStep::MarkDone { group } => self.mark_done_if_stuck(nth(group)),
            OperatorStep::AllowEmpty { group, allowed } => groups[nth(group)].allow_empty = *allowed,
            OperatorStep::Version { version: number } => wanted = version(*number),
            OperatorStep::Schedule { schedule: number } => {
                schedule = Schedule::ALL[usize::from(*number) % Schedule::ALL.len()];
            }
            OperatorStep::Selector { group, role } => {
                groups[nth(group)].agents.node_labels_expression = Some(expression(*role));
            }
            OperatorStep::Swap { group } => groups.swap(nth(group), 0),
            OperatorStep::Require { group, other } => {
                let (name, other) = (groups[nth(group)].name.clone(), groups[nth(other)].name.clone());
                let before = self.settings();
                let is_known = before.groups().iter().any(|group| group.name == other);
                let is_circle = is_known && before.required(other.as_str()).contains(&name.to_string());
                if other != name && is_known && !is_circle {
                    groups[nth(group)].requires = vec![other];
                }
            }
            OperatorStep::Free { group } => groups[nth(group)].requires.clear(),
        }
        let before = self.settings();
        let is_news = config != before.config
            || wanted != before.rollout.version
            || schedule != before.rollout.schedule;
        if is_news {
            self.say(config, wanted, schedule)?;
        }
        self.note_resumed();
        Ok(())
    }

    fn say(&mut self, config: ClusterMaintenanceConfig, version: Version, schedule: Schedule) -> Held {
        let settings = self.settings().clone();
        let fingerprint = fingerprint(&version, schedule, &config);
        let is_new = fingerprint != settings.rollout.fingerprint;
        hold!(
            EPOCH,
            is_new == begins_an_epoch(&settings, &version, schedule, &config),
            "{settings:?}, then {config:?}"
        );
        let rollout = match is_new {
            false => settings.rollout,
            true => RolloutRecord {
                epoch: settings.rollout.epoch + 1,
                fingerprint,
                version,
                schedule,
                began_at: self.now,
                ..settings.rollout
            },
        };
        self.store.put_settings(Settings { config, rollout }, self.now);
        if is_new { self.nothing_has_happened() } else { Ok(()) }
    }

    /// Hosts are told and wake their updaters; then nobody may go for a while, in one of three ways.
    pub fn hesitate(&mut self, how: u8, seconds: u16, version: Option<u8>) -> Held {
        self.hosts_go(0);
        let group = how / 3;
        let (stop, go) = match how % 3 {
            0 => (OperatorStep::Switch { on: false }, OperatorStep::Switch { on: true }),
            1 => (OperatorStep::Pause, OperatorStep::Resume),
            _ => (OperatorStep::PauseGroup { group }, OperatorStep::ResumeGroup { group }),
        };
        self.operator_step(&stop)?;
        self.settle()?;
        self.now = after(self.now, i64::from(seconds));
        if let Some(version) = version {
            self.operator_step(&OperatorStep::Version { version })?;
        }
        self.operator_step(&go)?;
        self.settle()
    }

    fn pause(&mut self, is_paused: bool) {
        let mut settings = self.settings().clone();
        settings.rollout.paused = is_paused.then_some(self.now);
        self.store.put_settings(settings, self.now);
    }

    fn pause_group(&mut self, group: usize, is_paused: bool) {
        let name = self.settings().groups()[group].name.to_string();
        let mut record = self.store.records.group(&name);
        record.paused = is_paused.then_some(self.now);
        self.store.put_together(Some((name, record)), Vec::new(), self.now);
    }

    fn run(&mut self, group: usize) -> Held {
        let group = self.settings().groups()[group].clone();
        let before = self.store.records.group(group.name.as_str());
        let record = run_group(&group, &before, self.now);
        let stays = before.state == GroupState::Succeeded;
        let expected = if stays { GroupState::Succeeded } else { GroupState::Scheduled };
        let is_forgotten = record.failed + record.timed_out == 0 && record.closed.is_none();
        hold!(RUN, record.state == expected && is_forgotten, "{before:?} became {record:?}");
        self.store.put_together(Some((group.name.to_string(), record)), Vec::new(), self.now);
        Ok(())
    }

    /// Declares a group done in which nobody can be upgraded.
    fn mark_done_if_stuck(&mut self, group: usize) {
        let name = self.settings().groups()[group].name.to_string();
        let record = self.store.records.group(&name);
        let hosts = self.store.records.host_records();
        let count = self.settings().recount(&name, record.round, &hosts, &self.store.gone);
        let is_open = !record.is_halted() && record.state != GroupState::Succeeded && !record.admitting;
        if is_open && self.settings().is_stuck(&record, &count) && count.newcomers + count.away == 0 {
            *self.tally.entry("Marked done".into()).or_default() += 1;
            let marked = mark_done(&record, "olga", self.now);
            self.store.put_together(Some((name, marked)), Vec::new(), self.now);
        }
    }

    /// Declares every group done in which nobody can be upgraded.
    pub fn operators_mark_what_is_stuck(&mut self) {
        for group in 0..self.settings().groups().len() {
            self.mark_done_if_stuck(group);
        }
    }

    /// Nothing is in the way any more: what halted is run again.
    pub fn operators_let_it_run(&mut self) -> Held {
        let mut config = self.settings().config.clone();
        config.agent_auto_update.enabled = true;
        let groups = &mut config.agent_auto_update_groups;
        for group in groups.regular.iter_mut().chain(&mut groups.critical) {
            if group.max_in_flight.is_zero() {
                group.max_in_flight = HostLimit::Hosts(1);
            }
        }
        let rollout = self.settings().rollout.clone();
        self.say(config, rollout.version, rollout.schedule)?;
        self.pause(false);
        for group in 0..self.settings().groups().len() {
            self.pause_group(group, false);
        }
        self.note_resumed();
        self.settle()?;
        for group in 0..self.settings().groups().len() {
            let name = self.settings().groups()[group].name.to_string();
            if self.store.records.group(&name).is_halted() {
                self.run(group)?;
            }
        }
        Ok(())
    }
}
