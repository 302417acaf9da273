//! The rollout status as wire messages, computed from the current view.

use refit_convert::blocked_by;
use refit_proto::code_of;
use refit_proto::rollouts::v1 as wire;
use refit_rollout::{HostFacts, HostOutcome, RolloutView};
use refit_types::{GroupRecord, HostId, HostRecord, Schedule};

use super::failures::failed_agent;
use super::{OperatorError, Rollouts};
use crate::fleet::FleetView;
use crate::rpc::timestamp;

/// The status of a host in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostStatus {
    Upgraded,
    InFlight,
    Failed,
    TimedOut,
    Held,
    Away,
    Unchanged,
}

impl HostStatus {
    pub(crate) const ALL: [(Self, &str); 7] = [
        (Self::Upgraded, "upgraded"),
        (Self::InFlight, "in_flight"),
        (Self::Failed, "failed"),
        (Self::TimedOut, "timed_out"),
        (Self::Held, "held"),
        (Self::Away, "away"),
        (Self::Unchanged, "unchanged"),
    ];

    /// The word for it on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(status, _)| *status == self).map_or("", |(_, word)| word)
    }

    /// The one of that word, or what is allowed.
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, known)| *known == word).map(|(status, _)| *status);
        found.ok_or_else(|| {
            let allowed: Vec<&str> = Self::ALL.iter().map(|(_, word)| *word).collect();
            let word: String = word.chars().take(80).collect();
            format!("{word:?} is not an outcome; expected {}", allowed.join(", "))
        })
    }

    pub(super) fn of(facts: &HostFacts, record: &GroupRecord) -> Self {
        match facts.ended {
            Some(HostOutcome::Upgraded) => Self::Upgraded,
            Some(HostOutcome::Failed { round }) if round == record.round => Self::Failed,
            Some(HostOutcome::TimedOut { round }) if round == record.round => Self::TimedOut,
            None if facts.started.is_some() => Self::InFlight,
            _ if facts.held => Self::Held,
            _ if facts.lost_since.is_some() => Self::Away,
            _ => Self::Unchanged,
        }
    }
}

impl Rollouts {
    /// How far everything is, for people.
    pub(crate) fn status(&self) -> wire::Rollout {
        let (view, now) = (self.fleet.view(), self.fleet.clock());
        let settings = view.snapshot.settings();
        let chosen = view.snapshot.chosen();
        let plan = view.snapshot.rollout();
        let rollout = view.rollout.as_ref();
        let window = rollout.and_then(|rollout| rollout.policy_window(now));
        let is_immediate = chosen.is_some_and(|chosen| chosen.agent_version_schedule == Schedule::Immediate);
        let window = window.filter(|_| !is_immediate);
        let hosts = rollout.map(RolloutView::ungrouped).unwrap_or_default();
        let schedule = chosen.map(|chosen| chosen.agent_version_schedule.as_str()).unwrap_or_default();
        wire::Rollout {
            enabled: settings.agent_auto_update.enabled,
            version: view.advertised.to_string(),
            schedule: schedule.into(),
            schedule_code: code_of::<wire::Schedule>(schedule),
            epoch: plan.map_or(0, |plan| plan.epoch),
            began_at: plan.map(|plan| timestamp(plan.began_at)),
            paused_at: plan.and_then(|plan| plan.paused).map(timestamp),
            groups: rollout.map(|rollout| self.groups(&view, rollout, now)).unwrap_or_default(),
            ungrouped: rollout.map(|_| wire::Ungrouped {
                hosts: hosts.hosts,
                on_version: hosts.on_version,
                opens_at: window.map(|window| timestamp(window.start)),
                closes_at: window.map(|window| timestamp(window.end)),
            }),
            now: Some(timestamp(now)),
            stopped: view.snapshot.unusable().unwrap_or_default(),
            last_good_version: plan
                .and_then(|plan| plan.last_good.as_ref())
                .map(ToString::to_string)
                .unwrap_or_default(),
        }
    }

    /// Up to `limit` hosts of a group behind `after`, and whether there may be more.
    pub(crate) fn group_hosts(
        &self,
        group: &str,
        filter: Option<HostStatus>,
        after: Option<HostId>,
        limit: usize,
    ) -> Result<(Vec<wire::GroupHost>, bool), OperatorError> {
        let view = self.fleet.view();
        let rollout = view.rollout.as_ref().ok_or(OperatorError::NoVersion)?;
        let plan = rollout.plan();
        let Some(position) = plan.position(group) else {
            let names: Vec<&str> = plan.groups.iter().map(|group| group.name.as_str()).collect();
            return Err(OperatorError::NoGroup {
                group: group.chars().take(80).collect(),
                schedule: plan.schedule.to_string(),
                known: if names.is_empty() { "none: it has no groups".into() } else { names.join(", ") },
            });
        };
        let record = rollout.group_record(position).cloned();
        let record = record.unwrap_or_else(|| GroupRecord::fresh(plan.epoch, plan.began_at));
        // The engine has worked out which group takes a host: expressions are too slow to ask for a fleet.
        let status = |host_record: &HostRecord| {
            let facts = rollout.facts(host_record.host_id).filter(|facts| facts.group == Some(position))?;
            Some((HostStatus::of(&facts, &record), facts))
        };
        let is_wanted = |host_record: &HostRecord| {
            status(host_record).is_some_and(|(found, _)| filter.is_none_or(|filter| filter == found))
        };
        let found = view.hosts.iter_after(after).filter(|(_, known)| is_wanted(&known.value));
        let mut page: Vec<_> = found.map(|(_, known)| known.value.clone()).take(limit + 1).collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let hosts = page.iter().filter_map(|host_record| {
            let (status, facts) = status(host_record)?;
            let reason = reason(&view, plan, host_record, &facts, status);
            Some(wire::GroupHost {
                host_id: host_record.host_id.to_string(),
                hostname: host_record.hostname.to_string(),
                version: host_record
                    .report
                    .as_ref()
                    .map(|report| report.version.to_string())
                    .unwrap_or_default(),
                outcome: status.as_str().into(),
                outcome_code: code_of::<wire::HostOutcome>(status.as_str()),
                reason,
                started_at: facts.started.map(timestamp),
                attempt: facts.attempt,
                failed_agent: matches!(status, HostStatus::Failed | HostStatus::TimedOut)
                    .then(|| failed_agent(plan, host_record))
                    .flatten(),
            })
        });
        Ok((hosts.collect(), more))
    }

    fn groups(&self, view: &FleetView, rollout: &RolloutView, now: jiff::Timestamp) -> Vec<wire::Group> {
        let groups = groups(rollout, now);
        let with_failure = |(group, position): (wire::Group, usize)| wire::Group {
            failure: self.failures.of(view, rollout, position),
            ..group
        };
        groups.into_iter().map(with_failure).collect()
    }
}

/// The groups that have a record, with their positions in the plan.
fn groups(rollout: &RolloutView, now: jiff::Timestamp) -> Vec<(wire::Group, usize)> {
    let plan = rollout.plan();
    let shown = plan.groups.iter().enumerate().filter_map(|(position, group)| {
        let record = rollout.group_record(position)?;
        let progress = rollout.progress(position);
        let window = rollout.window(position, now);
        let blocked = rollout.blocked_by(position, now);
        let group = wire::Group {
            name: group.name.to_string(),
            state: record.state.as_str().into(),
            state_code: code_of::<wire::GroupState>(record.state.as_str()),
            since: Some(timestamp(record.since)),
            requires: group.requires.iter().map(ToString::to_string).collect(),
            members: record.members.saturating_sub(record.removed),
            upgraded: record.upgraded,
            failed: record.failed,
            timed_out: record.timed_out,
            in_flight: rollout.under_way(position, now),
            limit: progress.limit,
            held: progress.held,
            away: progress.away,
            newcomers: progress.newcomers,
            opens_at: window.map(|window| timestamp(window.start)),
            closes_at: window.map(|window| timestamp(window.end)),
            timezone: group.window.timezone.to_string(),
            waiting: blocked.as_ref().map(|why| why.in_words(now)).unwrap_or_default(),
            blocked_by: blocked.as_ref().map(blocked_by),
            paused_at: record.paused.map(timestamp),
            by_hand: record.window.is_some() && record.window == record.run,
            removed: record.removed,
            marked_done_at: record.marked_done().map(|marked| timestamp(marked.at)),
            marked_done_by: record.marked_done().map(|marked| marked.by.to_string()).unwrap_or_default(),
            failure: None,
        };
        Some((group, position))
    });
    shown.collect()
}

/// Why a host stands where it does, in words.
pub(super) fn reason(
    view: &FleetView,
    plan: &refit_rollout::Plan,
    host_record: &HostRecord,
    facts: &HostFacts,
    status: HostStatus,
) -> String {
    let shown = |at: jiff::Timestamp| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    let version = host_record.report.as_ref().map_or("unknown".into(), |report| report.version.to_string());
    let told = || facts.started.map(shown).unwrap_or_default();
    let failed = HostFacts::failed_because(plan, host_record).unwrap_or_default();
    let acknowledged = if facts.acknowledged { ", its agent has woken its updater" } else { "" };
    let obstacle = HostFacts::obstacle(plan, host_record);
    let obstacle = obstacle.map(|obstacle| format!("; {obstacle}")).unwrap_or_default();
    match status {
        HostStatus::Upgraded => String::new(),
        HostStatus::Failed => failed,
        HostStatus::TimedOut if facts.undone => format!("told at {}, and late {failed}", told()),
        HostStatus::TimedOut if facts.proving => {
            format!("told at {}, runs {version}, and its updater has not said that it stays", told())
        }
        HostStatus::TimedOut => format!("told at {}, still on {version}{obstacle}", told()),
        HostStatus::InFlight if facts.carried => {
            format!(
                "told at {} to go to an earlier version{acknowledged}; has not reported how it ended",
                told()
            )
        }
        HostStatus::InFlight if facts.proving => {
            format!("told at {}, runs {version}, which its updater watches", told())
        }
        HostStatus::InFlight => {
            format!("told at {}{acknowledged}{obstacle}", told())
        }
        HostStatus::Held => HostFacts::held_because(plan, host_record).unwrap_or_default(),
        HostStatus::Away => match view.lost_since(host_record) {
            Some(since) => format!("not connected since {}", shown(since)),
            None => String::new(),
        },
        HostStatus::Unchanged if !facts.member => {
            "not a member yet: starts when the window is open and a slot is free".into()
        }
        HostStatus::Unchanged => "waits for its turn".into(),
    }
}
