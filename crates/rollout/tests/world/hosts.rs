//! What random hosts do in the property tests: join, report, fail, disappear and return.

use jiff::Timestamp;
use refit_rollout::removed;
use refit_types::{
    AgentRole, Edition, HostId, HostRecord, Labels, Report, RotationMark, Session, UpdateFailure,
    UpdateObstacle, UpdateTarget, UpdaterStatus, UpgraderKind, Version,
};
use uuid::Uuid;

use super::World;
use super::operators::version;
use super::server::facts;
use crate::model::{Gone, after};

/// What may happen on a host.
#[derive(Debug, Clone)]
pub enum HostStep {
    /// It joins, or joins again, with that role and version.
    Join { role: u8, version: u8 },
    /// It joins again, and tells of what it did before it was removed.
    JoinAgain { role: u8, acknowledged: u8, undone: u8 },
    /// It joins and says nothing yet.
    JoinSilently,
    /// Its agent says that it woke its updater.
    Acknowledge,
    /// It runs the version that is rolled out, which its updater has yet to find good.
    Try,
    /// Its updater installed the version while no agent ran: over another one, or as the first.
    Install { first: bool },
    /// It reports the version that is rolled out, and so does its updater.
    Upgrade,
    /// It reports some version.
    Report { version: u8 },
    /// Its updater undid the present attempt.
    Fail,
    /// Its updater tells of an attempt before, or one that never was.
    FailOtherAttempt { up: bool },
    /// Its updater undid another version.
    FailOtherVersion,
    /// Its updater cannot begin the present attempt; one of an older release calls that a failure.
    Obstacle { older: bool },
    /// Nobody hears it.
    Leave,
    /// It is heard again.
    Return,
    /// It is pinned to a version.
    Pin { version: u8 },
    /// Its updates are disabled.
    Disable,
    /// Its updater cannot do it.
    Hold,
    /// Its updater cannot do it, and does not say what: it is an older one.
    HoldSilently,
    /// Its updater could not go to that version, in this attempt or the one before.
    HoldOther { version: u8, earlier: bool },
    /// Its updater was told something else before it had switched anything.
    CallOff,
    /// Nothing keeps its updater any more.
    Release,
    /// It has other labels.
    Relabel { role: u8 },
    /// An operator removes it from the cluster.
    Remove,
}

/// From this number on, a host that is under way is meant, if there is one: most of what is of interest happens there.
pub const SOMEONE_IN_FLIGHT: usize = 128;

/// No more arrive: everything is looked at after each step.
const MOST_HOSTS: usize = 24;

pub fn labels(role: u8) -> Labels {
    format!("role=r{}", role % 6).parse().unwrap()
}

pub fn report(version: Version, labels: Labels) -> Report {
    Report {
        version,
        edition: Edition::Oss.into(),
        node_labels: labels.clone(),
        instance_labels: labels,
        upgrader: UpgraderKind::Binary.into(),
        updater: Some(Box::new(UpdaterStatus { agent_updates_enabled: true, ..UpdaterStatus::default() })),
        session: Session { id: Uuid::nil(), started_at: Timestamp::UNIX_EPOCH },
        rotation: RotationMark::default(),
        hint_acknowledged: 0,
        platform: None,
    }
}

impl World {
    pub fn host_step(&mut self, number: usize, step: &HostStep) {
        if self.ids.is_empty() {
            return;
        }
        let is_under_way = |id: &HostId| {
            let host = self.store.records.host_record(*id);
            self.is_in_flight(*id) || host.is_some_and(|host| self.settings().is_unsettled(host, self.now))
        };
        let flying: Vec<HostId> = self.ids.iter().copied().filter(is_under_way).collect();
        let among = if number >= SOMEONE_IN_FLIGHT && !flying.is_empty() { &flying } else { &self.ids };
        let id = among[number % among.len()];
        let now = self.now;
        match step {
            HostStep::Join { role, version: number } => {
                if self.store.records.host_record(id).is_none() {
                    let mut host_record = joined(id, now);
                    host_record.report = Some(report(version(*number), labels(*role)));
                    host_record.server = Some("one".into());
                    self.put(host_record);
                }
            }
            HostStep::JoinAgain { role, acknowledged, undone } => {
                if self.store.records.host_record(id).is_none() {
                    let mut host_record = joined(id, now);
                    let mut report = report(version(0), labels(*role));
                    report.hint_acknowledged = u64::from(*acknowledged);
                    let wanted = self.settings().rollout.version.clone();
                    tell(&mut report, &HostStep::Fail, u64::from(*undone), &wanted, now);
                    host_record.report = Some(report);
                    host_record.server = Some("one".into());
                    self.put(host_record);
                }
            }
            HostStep::JoinSilently => {
                if self.store.records.host_record(id).is_none() {
                    self.put(joined(id, now));
                }
            }
            HostStep::Remove => self.remove(id),
            HostStep::Leave => self.change(id, |host_record| {
                host_record.last_seen = now;
                host_record.server = None;
            }),
            step => {
                let wanted = self.settings().rollout.version.clone();
                self.change_report(id, |report, attempt| tell(report, step, attempt, &wanted, now));
            }
        }
    }

    /// A host joins that was never there before, on the version before all others.
    pub fn arrive(&mut self, role: u8) {
        if self.ids.len() < MOST_HOSTS {
            self.ids.push(HostId::new(Uuid::from_u128(self.ids.len() as u128 + 1)));
            self.host_step(self.ids.len() - 1, &HostStep::Join { role, version: 0 });
        }
    }

    fn put(&mut self, host_record: HostRecord) {
        self.store.put_together(None, vec![(host_record.host_id, Some(Box::new(host_record)))], self.now);
    }

    fn change(&mut self, id: HostId, change: impl FnOnce(&mut HostRecord)) {
        let Some(mut host_record) = self.store.records.host_record(id).cloned() else { return };
        change(&mut host_record);
        self.put(host_record);
    }

    /// A heartbeat: the host is heard, and says something.
    fn change_report(&mut self, id: HostId, change: impl FnOnce(&mut Report, u64)) {
        let now = self.now;
        self.change(id, |host_record| {
            let attempt = host_record.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt);
            let mut reported = host_record.report.take().unwrap_or_else(|| report(version(0), labels(0)));
            change(&mut reported, attempt);
            host_record.report = Some(reported);
            host_record.server = Some("one".into());
            host_record.last_seen = now;
        });
    }

    fn remove(&mut self, id: HostId) {
        let Some(host_record) = self.store.records.host_record(id).cloned() else { return };
        let settings = self.settings();
        let plan = refit_rollout::Plan::new(&settings.rollout, Default::default(), &settings.config);
        let facts = facts(&plan, &host_record);
        let upgrade = settings.upgrade_of(&host_record).cloned();
        let group = settings.present_of(&host_record).map(|upgrade| {
            let name = upgrade.group_name.to_string();
            let record = self.store.records.group(&name);
            (name, removed(&record, &facts))
        });
        self.flights.remove(&id);
        self.store.gone.extend(upgrade.map(|upgrade| Gone { upgrade }));
        self.store.put_together(group, vec![(id, None)], self.now);
    }

    /// Hosts that are told to go: each acknowledges, and if its bit is set, has the version.
    pub fn hosts_go(&mut self, some: u16) {
        let wanted = self.settings().rollout.version.clone();
        for (n, id) in self.ids.clone().into_iter().enumerate() {
            if self.is_in_flight(id)
                && self.store.records.host_record(id).is_some_and(|host| host.server.is_some())
            {
                let arrives = some >> (n % 16) & 1 == 1;
                let is_carried = self.is_carried(id);
                self.change_report(id, |report, attempt| {
                    report.hint_acknowledged = attempt;
                    if arrives && is_carried {
                        let version = wanted.clone();
                        let updater = report.updater.get_or_insert_default();
                        updater.called_off = Some(UpdateTarget { version, attempt });
                    } else if arrives {
                        settle(report, wanted.clone());
                    }
                });
            }
        }
    }

    fn is_in_flight(&self, id: HostId) -> bool {
        self.store.records.host_record(id).is_some_and(|host| self.settings().has_slot(host))
    }

    fn is_carried(&self, id: HostId) -> bool {
        self.store.records.host_record(id).is_some_and(|host| self.settings().is_carried(host))
    }

    pub fn everyone_returns(&mut self) {
        for id in self.ids.clone() {
            if self.store.records.host_record(id).is_some_and(|host| host.server.is_none()) {
                self.change_report(id, |_, _| {});
            }
        }
    }

    /// Updaters tell of no failure any more, and have written down what runs.
    pub fn updaters_are_at_rest(&mut self) {
        for id in self.ids.clone() {
            self.change_report(id, |report, _| {
                let updater = report.updater.get_or_insert_default();
                (updater.last_failure, updater.obstacle) = (None, None);
                settle(report, report.version.clone());
            });
        }
    }

    /// Agents that are told to go wake their updaters at once.
    pub fn hosts_acknowledge(&mut self) {
        for id in self.ids.clone() {
            if let Some(attempt) =
                self.servers[0].engine.view().hint(id, self.now).filter(|attempt| *attempt > 0)
            {
                let known = self.store.records.host_record(id).and_then(|host| host.report.as_ref());
                if known.is_some_and(|report| report.hint_acknowledged != attempt) {
                    self.change_report(id, |report, _| report.hint_acknowledged = attempt);
                }
            }
        }
    }

    /// How long this host takes: less than its group allows.
    fn arrives_at(&self, id: HostId) -> Option<Timestamp> {
        let goes = self.is_in_flight(id) && !self.is_carried(id);
        let host = self.store.records.host_record(id).filter(|_| goes)?;
        let upgrade = self.settings().present_of(host)?;
        let allowed = self.settings().group(upgrade.group_name.as_str()).timeout_seconds;
        let takes = i64::from((id.uuid().as_u128() % u128::from(allowed)) as u32).max(1);
        Some(after(upgrade.start_time?, takes)).filter(|_| self.settings().has_acknowledged(host))
    }

    pub fn next_arrival(&self) -> Option<Timestamp> {
        self.ids.iter().filter_map(|id| self.arrives_at(*id)).min()
    }

    pub fn hosts_arrive(&mut self) {
        let wanted = self.settings().rollout.version.clone();
        for id in self.ids.clone() {
            if self.arrives_at(id).is_some_and(|at| at <= self.now) {
                self.change_report(id, |report, _| settle(report, wanted.clone()));
            }
        }
    }
}

pub fn joined(id: HostId, now: Timestamp) -> HostRecord {
    HostRecord::joined(id, "host", vec![AgentRole::Node], now)
}

/// That version runs, and the updater takes it for installed.
fn settle(report: &mut Report, version: Version) {
    let updater = report.updater.get_or_insert_default();
    updater.agent_version_installed = Some(version.clone());
    (updater.unproved, updater.agent_version_previous) = (false, None);
    report.version = version;
}

fn tell(report: &mut Report, step: &HostStep, attempt: u64, wanted: &Version, now: Timestamp) {
    let updater = report.updater.get_or_insert_default();
    let failure = |attempt, version: &Version| {
        let (step, reason) = ("start".to_owned(), "it did not start".to_owned());
        Some(UpdateFailure { attempt, version: version.clone(), step, reason, at: now, agent: None })
    };
    match step {
        HostStep::Acknowledge => report.hint_acknowledged = attempt,
        HostStep::Try => {
            updater.agent_version_installed.get_or_insert_with(|| report.version.clone());
            report.version = wanted.clone();
        }
        HostStep::Install { first } => {
            let previous = report.version.clone();
            settle(report, wanted.clone());
            let updater = report.updater.get_or_insert_default();
            updater.unproved = true;
            updater.agent_version_previous = Some(previous).filter(|_| !first);
        }
        HostStep::Upgrade => settle(report, wanted.clone()),
        HostStep::Report { version: number } => settle(report, version(*number)),
        HostStep::Fail => {
            updater.last_failure = failure(attempt, wanted);
            if let Some(previous) = updater.agent_version_previous.take() {
                updater.agent_version_installed = Some(previous);
                updater.unproved = false;
            }
            if let Some(installed) = &updater.agent_version_installed {
                report.version = installed.clone();
            }
        }
        HostStep::FailOtherAttempt { up } => {
            let other = if *up { attempt + 1 } else { attempt.saturating_sub(1) };
            updater.last_failure = failure(other, wanted);
        }
        HostStep::FailOtherVersion => updater.last_failure = failure(attempt, &version(9)),
        HostStep::Obstacle { older: false } => {
            updater.obstacle = Some(UpdateObstacle {
                attempt,
                version: Some(wanted.clone()),
                step: "download".into(),
                reason: "404 Not Found".into(),
                at: now,
                tries: 2,
                next_try: None,
            });
        }
        HostStep::Obstacle { older: true } => {
            let (step, reason) = ("download".to_owned(), "404 Not Found".to_owned());
            updater.last_failure =
                Some(UpdateFailure { attempt, version: wanted.clone(), step, reason, at: now, agent: None });
        }
        HostStep::Pin { version: number } => updater.pinned_version = Some(version(*number)),
        HostStep::Disable => updater.agent_updates_enabled = false,
        HostStep::Hold => {
            updater.held = Some("no usable backup".into());
            updater.held_target = Some(UpdateTarget { version: wanted.clone(), attempt });
            updater.agent_version_desired = Some(wanted.clone());
        }
        HostStep::HoldSilently => {
            updater.held = Some("no usable backup".into());
            updater.held_target = None;
            updater.agent_version_desired = Some(wanted.clone());
        }
        HostStep::HoldOther { version: number, earlier } => {
            let attempt = attempt.saturating_sub(u64::from(*earlier));
            updater.held = Some("no usable backup".into());
            updater.held_target = Some(UpdateTarget { version: version(*number), attempt });
            updater.agent_version_desired = Some(version(*number));
        }
        HostStep::CallOff => {
            updater.called_off = Some(UpdateTarget { version: wanted.clone(), attempt });
        }
        HostStep::Release => {
            updater.pinned_version = None;
            updater.held = None;
            updater.held_target = None;
            updater.agent_updates_enabled = true;
        }
        HostStep::Relabel { role } => {
            report.node_labels = labels(*role);
            report.instance_labels = labels(*role);
        }
        HostStep::Join { .. }
        | HostStep::JoinAgain { .. }
        | HostStep::JoinSilently
        | HostStep::Remove
        | HostStep::Leave
        | HostStep::Return => {}
    }
}
