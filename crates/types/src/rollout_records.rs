//! The stored records of a rollout: the progress of a host, of a group, and of the whole.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    FeatureLevel, GroupName, HostLimit, Schedule, Span, UnknownFields, Version, keep_unknown_fields,
};

/// A host's progress in a rollout: part of its record, with the field names that operators see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Upgrade {
    /// The epoch in which the host became a member; in any other epoch the rest does not count.
    #[serde(rename = "agent_upgrade_epoch")]
    pub epoch: u64,
    /// The schedule of its group.
    #[serde(rename = "agent_upgrade_group_schedule")]
    pub group_schedule: Schedule,
    /// The group that it is a member of.
    #[serde(rename = "agent_upgrade_group_name")]
    pub group_name: GroupName,
    /// When the window opened in which it became a member or last started.
    #[serde(rename = "agent_upgrade_group_start_time")]
    pub group_start_time: Timestamp,
    /// When that window closes.
    #[serde(rename = "agent_upgrade_group_end_time")]
    pub group_end_time: Timestamp,
    /// When it was told to upgrade, unless the start was revoked.
    #[serde(rename = "agent_upgrade_start_time", default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// How often it was told to upgrade, over all epochs: identifies the current start.
    #[serde(rename = "agent_upgrade_attempt", default)]
    pub attempt: u64,
    /// The version that it was told to go to, while it is in flight.
    #[serde(rename = "agent_upgrade_version", default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Box<Version>>,
    /// Whether it was told in an earlier epoch and has not settled: it keeps a slot until it does.
    #[serde(rename = "agent_upgrade_carried", default, skip_serializing_if = "is_false")]
    pub carried: bool,
    /// Its start as a newcomer. The epoch above is then not the present one, so that a release that does not know
    /// newcomers' starts takes the host for one that has not started.
    #[serde(rename = "agent_upgrade_newcomer", default, skip_serializing_if = "Option::is_none")]
    pub newcomer: Option<NewcomerStart>,
    /// That it is in flight while no host may be told to upgrade: it gets that time back afterwards.
    #[serde(rename = "agent_upgrade_suspended", default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Box<Suspension>>,
    /// The round of its group in which it finished; each `run` begins a new one.
    #[serde(rename = "agent_upgrade_round", default)]
    pub round: u32,
    /// How it finished, if it has.
    #[serde(rename = "agent_upgrade_outcome", default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Unknown fields of a newer release, including those of the outcome.
    #[serde(skip)]
    pub unknown: UnknownFields,
}

/// The start of a host that is not a member yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewcomerStart {
    /// In which epoch.
    pub epoch: u64,
    /// Whether it has a slot of its group.
    pub in_flight: bool,
}

/// A pause, or the off switch, during a host's attempt. It names the attempt because a release that does not know it
/// keeps it in later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// In which attempt.
    pub attempt: u64,
    /// Since when.
    pub since: Timestamp,
}

/// How a host's upgrade finished. The counts of its group depend on it, so a host record with an unknown outcome
/// cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", try_from = "OutcomeFields")]
pub enum Outcome {
    /// It reported the version.
    Upgraded {
        /// When that was noted.
        at: Timestamp,
    },
    /// Its updater rolled the update back, or it disconnected for too long.
    Failed {
        /// When that was noted.
        at: Timestamp,
        /// Why, in words.
        reason: Box<str>,
    },
    /// Its version did not change in time.
    TimedOut {
        /// When that was noted.
        at: Timestamp,
    },
}

/// The stored form of an outcome: a struct, so that unknown fields are seen and kept.
#[derive(Deserialize)]
struct OutcomeFields {
    outcome: OutcomeName,
    at: Timestamp,
    reason: Option<Box<str>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeName {
    Upgraded,
    Failed,
    TimedOut,
}

impl TryFrom<OutcomeFields> for Outcome {
    type Error = &'static str;

    fn try_from(fields: OutcomeFields) -> Result<Self, Self::Error> {
        let OutcomeFields { outcome, at, reason } = fields;
        match (outcome, reason) {
            (OutcomeName::Upgraded, None) => Ok(Self::Upgraded { at }),
            (OutcomeName::TimedOut, None) => Ok(Self::TimedOut { at }),
            (OutcomeName::Failed, Some(reason)) => Ok(Self::Failed { at, reason }),
            (OutcomeName::Failed, None) => Err("a failed outcome has no reason"),
            (_, Some(_)) => Err("an outcome that is no failure has a reason"),
        }
    }
}

/// The progress of a group in the current epoch. Its counts are exact: a transaction that changes a host's progress
/// also changes the counts of its group. Unknown fields survive a rewrite. A record in an unknown state, or halted
/// for an unknown cause, cannot be read: whether hosts may start depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct GroupRecord {
    /// Which epoch it is of.
    pub epoch: u64,
    /// Where it stands.
    pub state: GroupState,
    /// Since when.
    pub since: Timestamp,
    /// The window that it was opened for, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// When the last window ended. No window is opened before, even by a server with a slow clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Timestamp>,
    /// Whether hosts are being added as members; none starts meanwhile.
    #[serde(default)]
    pub admitting: bool,
    /// Whether the members were added once in this epoch.
    #[serde(default)]
    pub sealed: bool,
    /// The window that an operator opened by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Span>,
    /// How often it was run by hand in this epoch.
    #[serde(default)]
    pub round: u32,
    /// Since when an operator keeps it from starting hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Timestamp>,
    /// Hosts that became members, including those that have left the fleet since.
    pub members: u32,
    /// Members that have left the fleet.
    #[serde(default)]
    pub removed: u32,
    /// Hosts that were told to upgrade and have not finished yet: members and newcomers.
    pub in_flight: u32,
    /// How many of these are newcomers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newcomer_slots: Option<NewcomerSlots>,
    /// Members on the version.
    pub upgraded: u32,
    /// Members that failed in this round.
    pub failed: u32,
    /// Members that timed out in this round.
    pub timed_out: u32,
    /// That an operator declared it done although no member could be upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked_done: Option<MarkedDone>,
    /// What a newer release wrote, here and in everything inside.
    #[serde(skip)]
    pub unknown: UnknownFields,
}

/// The slots of newcomers. It names its epoch because a release that does not know it keeps it in later epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewcomerSlots {
    /// In which epoch.
    pub epoch: u64,
    /// How many.
    pub count: u32,
}

/// Who declared a group done. It names its epoch for the same reason as [`NewcomerSlots`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedDone {
    /// In which epoch.
    pub epoch: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Box<str>,
}

/// Where a group stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// It waits for its window, or for groups that it requires.
    Scheduled,
    /// Its hosts are being upgraded.
    Active,
    /// All of its members have finished, except those that are held, and at least one runs the version.
    Succeeded,
    /// Too many failed or timed out: no host starts here, or in groups that require it, until an operator runs it
    /// again.
    Halted(Halt),
}

/// Why a group halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// What there was too much of.
    pub cause: HaltCause,
    /// How many.
    pub count: u32,
    /// Of how many members.
    pub members: u32,
    /// What was allowed.
    pub limit: HostLimit,
}

/// What a group can have too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HaltCause {
    /// Failures.
    Failed,
    /// Time-outs.
    TimedOut,
}

/// What is being rolled out: one record for the cluster. A new epoch resets the progress of all groups.
/// Unknown fields survive a rewrite; with an unknown schedule the record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RolloutRecord {
    /// Only ever increases.
    pub epoch: u64,
    /// A digest of everything whose change begins a new epoch.
    pub fingerprint: String,
    /// The version that is rolled out.
    pub version: Version,
    /// By which schedule.
    pub schedule: Schedule,
    /// When the epoch began.
    pub began_at: Timestamp,
    /// Since when an operator keeps every host from being told, in any schedule, with or without a group, known or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Timestamp>,
    /// The version whose rollout last ended well, in this epoch or before: what new hosts get while a rollout is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good: Option<Version>,
    /// The feature level that a server needs: one below it makes no decisions and tells no host to upgrade.
    #[serde(default, skip_serializing_if = "FeatureLevel::is_none")]
    pub level: FeatureLevel,
    /// What a newer release wrote.
    #[serde(skip)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Upgrade, GroupRecord, RolloutRecord);

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Upgrade {
    /// Drops the outcome before another attempt, with the unknown fields inside of it.
    pub fn clear_outcome(&mut self) {
        self.outcome = None;
        self.unknown.forget_below("agent_upgrade_outcome");
    }
}

impl RolloutRecord {
    /// An epoch that begins: nothing is paused, and every server can take part.
    pub fn begun(
        epoch: u64,
        fingerprint: String,
        version: Version,
        schedule: Schedule,
        began_at: Timestamp,
    ) -> Self {
        let (paused, last_good, level, unknown) = Default::default();
        Self { epoch, fingerprint, version, schedule, began_at, paused, last_good, level, unknown }
    }
}

impl GroupRecord {
    /// A group at the start of that epoch.
    pub fn fresh(epoch: u64, since: Timestamp) -> Self {
        Self {
            epoch,
            state: GroupState::Scheduled,
            since,
            window: None,
            closed: None,
            admitting: false,
            sealed: false,
            run: None,
            round: 0,
            paused: None,
            members: 0,
            removed: 0,
            in_flight: 0,
            newcomer_slots: None,
            upgraded: 0,
            failed: 0,
            timed_out: 0,
            marked_done: None,
            unknown: UnknownFields::default(),
        }
    }

    /// The record at the start of another epoch: an operator's pause and unknown fields are kept.
    pub fn renewed(&self, epoch: u64, since: Timestamp) -> Self {
        Self { paused: self.paused, unknown: self.unknown.clone(), ..Self::fresh(epoch, since) }
    }

    /// How many newcomers are in flight.
    pub fn newcomers_in_flight(&self) -> u32 {
        self.newcomer_slots.filter(|slots| slots.epoch == self.epoch).map_or(0, |slots| slots.count)
    }

    /// Sets how many newcomers are in flight.
    pub fn set_newcomers_in_flight(&mut self, count: u32) {
        self.newcomer_slots = (count > 0).then_some(NewcomerSlots { epoch: self.epoch, count });
    }

    /// How many members are in flight.
    pub fn members_in_flight(&self) -> u32 {
        self.in_flight.saturating_sub(self.newcomers_in_flight())
    }

    /// Who declared it done in this epoch, if anyone did.
    pub fn marked_done(&self) -> Option<&MarkedDone> {
        self.marked_done.as_ref().filter(|marked| marked.epoch == self.epoch)
    }

    /// Whether it has halted.
    pub fn is_halted(&self) -> bool {
        matches!(self.state, GroupState::Halted(_))
    }
}

impl GroupState {
    /// The state in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Active => "active",
            Self::Succeeded => "succeeded",
            Self::Halted(_) => "halted",
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.cause {
            HaltCause::Failed => "failed",
            HaltCause::TimedOut => "timed out",
        };
        write!(f, "{} of {} {what}, limit {}", self.count, self.members, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_a_closing_time_is_read_and_written_unchanged() {
        let closed: Timestamp = "2026-07-02T04:00:00Z".parse().unwrap();
        let fresh = GroupRecord::fresh(3, closed);
        let written = serde_json::to_value(&fresh).unwrap();
        assert!(written.get("closed").is_none(), "{written}");
        assert_eq!(serde_json::from_value::<GroupRecord>(written).unwrap(), fresh);
        let ended = GroupRecord { closed: Some(closed), ..fresh };
        let written = serde_json::to_value(&ended).unwrap();
        assert_eq!(written["closed"], "2026-07-02T04:00:00Z");
        assert_eq!(serde_json::from_value::<GroupRecord>(written).unwrap(), ended);
    }
}
