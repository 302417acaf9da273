use jiff::Timestamp;
use refit_proto::rollouts::v1 as wire;
use serde::Serialize;

use crate::ctl::timestamp;

/// How far everything is, as programs read it.
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
    #[serde(skip)]
    pub(super) now: Timestamp,
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
}

impl Group {
    /// Members that are still on what they were on, for whatever reason.
    pub(super) fn unchanged(&self) -> u32 {
        let ended = self.upgraded + self.failed + self.timed_out + self.in_flight;
        self.members.saturating_sub(ended)
    }

    /// The window in which hosts may start: of no meaning for a group that has halted, or in which everyone
    /// has ended.
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
        Self {
            enabled: rollout.enabled,
            version: rollout.version,
            schedule: some(rollout.schedule),
            epoch: rollout.epoch,
            began_at: timestamp(rollout.began_at),
            paused_at: timestamp(rollout.paused_at),
            groups: rollout.groups.into_iter().map(Group::from).collect(),
            ungrouped: rollout.ungrouped.map(|ungrouped| Ungrouped {
                hosts: ungrouped.hosts,
                on_version: ungrouped.on_version,
                opens_at: timestamp(ungrouped.opens_at),
                closes_at: timestamp(ungrouped.closes_at),
            }),
            now: timestamp(rollout.now).unwrap_or_else(Timestamp::now),
        }
    }
}

impl From<wire::Group> for Group {
    fn from(group: wire::Group) -> Self {
        Self {
            name: group.name,
            state: group.state,
            since: timestamp(group.since),
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
            opens_at: timestamp(group.opens_at),
            closes_at: timestamp(group.closes_at),
            timezone: group.timezone,
            waiting: some(group.waiting),
            paused_at: timestamp(group.paused_at),
            by_hand: group.by_hand,
            removed: group.removed,
        }
    }
}
