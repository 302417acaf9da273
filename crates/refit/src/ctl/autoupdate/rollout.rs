//! The rollout status as `refitctl` shows it and as its JSON output spells it, converted from the wire.

use jiff::Timestamp;
use refit_convert::{blocked_by_from_wire, blocked_by_in_words, failed_agent_from_wire, moment};
use refit_proto::rollouts::v1 as wire;
use refit_rollout::BlockedBy;
use refit_types::FailedAgent;
use serde::Serialize;

/// The rollout status in JSON output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rollout {
    pub(super) enabled: bool,
    pub(super) version: String,
    pub(super) schedule: Option<String>,
    pub(super) epoch: u64,
    pub(super) began_at: Option<Timestamp>,
    pub(super) paused_at: Option<Timestamp>,
    pub(super) groups: Vec<Group>,
    pub(super) ungrouped: Option<Ungrouped>,
    /// Why the server that answered makes no decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
    /// What new hosts get while the rollout is paused or has halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_good_version: Option<String>,
    #[serde(skip)]
    pub(super) now: Timestamp,
}

impl Rollout {
    /// The version that new hosts get instead, if they do.
    pub(super) fn instead(&self) -> Option<&str> {
        let is_stopped = self.paused_at.is_some() || self.groups.iter().any(|group| group.state == "halted");
        self.last_good_version.as_deref().filter(|good| is_stopped && *good != self.version)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Ungrouped {
    pub(super) hosts: u32,
    pub(super) on_version: u32,
    pub(super) opens_at: Option<Timestamp>,
    pub(super) closes_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) since: Option<Timestamp>,
    pub(super) requires: Vec<String>,
    pub(super) members: u32,
    pub(super) upgraded: u32,
    pub(super) failed: u32,
    pub(super) timed_out: u32,
    pub(super) in_flight: u32,
    pub(super) limit: u32,
    pub(super) held: u32,
    pub(super) away: u32,
    pub(super) newcomers: u32,
    pub(super) opens_at: Option<Timestamp>,
    pub(super) closes_at: Option<Timestamp>,
    pub(super) timezone: String,
    pub(super) waiting: Option<String>,
    pub(super) paused_at: Option<Timestamp>,
    pub(super) by_hand: bool,
    pub(super) removed: u32,
    /// When and by whom it was declared done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) marked_done_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) marked_done_by: Option<String>,
    /// One of the hosts that it halted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<HostFailure>,
    /// Whether nobody in it can be upgraded, so that it does not move by itself.
    #[serde(skip)]
    pub(super) is_stuck: bool,
    /// Whether it only waits for other groups.
    #[serde(skip)]
    pub(super) waits_for_groups: bool,
}

/// Why a host did not make it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HostFailure {
    pub(super) host_id: String,
    pub(super) hostname: String,
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_agent: Option<FailedAgent>,
}

impl From<wire::HostFailure> for HostFailure {
    fn from(failure: wire::HostFailure) -> Self {
        Self {
            host_id: failure.host_id,
            hostname: failure.hostname,
            reason: failure.reason,
            failed_agent: failure.failed_agent.map(failed_agent_from_wire),
        }
    }
}

impl Group {
    /// Members that still run their old version, for whatever reason.
    pub(super) fn unchanged(&self) -> u32 {
        let ended = self.upgraded + self.failed + self.timed_out + self.in_flight;
        self.members.saturating_sub(ended)
    }

    /// The window in which hosts may start; none for a group that has halted or finished.
    pub(super) fn window_ahead(&self) -> Option<(Timestamp, Timestamp)> {
        let is_over = self.state == "halted" || self.state == "succeeded" && self.newcomers == 0;
        Some((self.opens_at?, self.closes_at?)).filter(|_| !is_over)
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<wire::Rollout> for Rollout {
    fn from(rollout: wire::Rollout) -> Self {
        let now = moment(rollout.now).unwrap_or_else(Timestamp::now);
        Self {
            enabled: rollout.enabled,
            schedule: some(rollout.schedule_text()),
            version: rollout.version,
            epoch: rollout.epoch,
            began_at: moment(rollout.began_at),
            paused_at: moment(rollout.paused_at),
            stopped: some(rollout.stopped),
            last_good_version: some(rollout.last_good_version),
            groups: rollout.groups.into_iter().map(|group| Group::read(group, now)).collect(),
            ungrouped: rollout.ungrouped.map(|ungrouped| Ungrouped {
                hosts: ungrouped.hosts,
                on_version: ungrouped.on_version,
                opens_at: moment(ungrouped.opens_at),
                closes_at: moment(ungrouped.closes_at),
            }),
            now,
        }
    }
}

impl Group {
    /// Converts a group of a response; `now` is the server's clock at that time.
    fn read(group: wire::Group, now: Timestamp) -> Self {
        let reason = group.blocked_by.as_ref().and_then(blocked_by_from_wire);
        Self {
            is_stuck: reason.as_ref().is_some_and(BlockedBy::is_stuck),
            waits_for_groups: matches!(reason, Some(BlockedBy::Requires(_))),
            state: group.state_text(),
            waiting: some(blocked_by_in_words(&group, now)),
            name: group.name,
            since: moment(group.since),
            requires: group.requires,
            members: group.members,
            upgraded: group.upgraded,
            failed: group.failed,
            timed_out: group.timed_out,
            in_flight: group.in_flight,
            limit: group.limit,
            held: group.held,
            away: group.away,
            newcomers: group.newcomers,
            opens_at: moment(group.opens_at),
            closes_at: moment(group.closes_at),
            timezone: group.timezone,
            paused_at: moment(group.paused_at),
            by_hand: group.by_hand,
            removed: group.removed,
            marked_done_at: moment(group.marked_done_at),
            marked_done_by: some(group.marked_done_by),
            failure: group.failure.map(HostFailure::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use refit_proto::rollouts::v1::blocked_by::{Reason, Requires};

    use super::*;

    fn read(group: wire::Group) -> Group {
        Group::read(group, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_group_is_read_by_its_enum_and_its_reason() {
        let reason = Reason::Requires(Requires { groups: vec!["canary".into()] });
        let group = read(wire::Group {
            state_code: wire::GroupState::Scheduled.into(),
            blocked_by: Some(wire::BlockedBy { reason: Some(reason) }),
            ..Default::default()
        });
        assert_eq!(
            (group.state.as_str(), group.waiting.as_deref()),
            ("scheduled", Some("waiting for canary"))
        );
    }

    #[test]
    fn what_is_not_known_is_shown_as_it_is() {
        let group = read(wire::Group {
            state: "resting".into(),
            state_code: 77,
            waiting: "the moon is full".into(),
            blocked_by: Some(wire::BlockedBy { reason: None }),
            ..Default::default()
        });
        assert_eq!((group.state.as_str(), group.waiting.as_deref()), ("resting", Some("the moon is full")));
        let moving = read(wire::Group { state: "active".into(), ..Default::default() });
        assert_eq!((moving.state.as_str(), moving.waiting), ("active", None));
    }
}
