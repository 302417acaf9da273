//! The reason why a group is blocked, on the wire and as text. The server sends both; readers format the structured
//! reason themselves, and fall back to the server's text for a reason that they do not know.

use jiff::Timestamp;
use refit_proto::rollouts::v1 as wire;
use refit_proto::rollouts::v1::blocked_by::{
    Disabled, GroupPaused, Halted, MembersAway, NoHosts, NoSlots, NobodyUpgraded, Reason, Requires,
    RolloutPaused, UnreadableGroup, UnreadableHosts, Window,
};
use refit_proto::rollouts::v1::{Group, HaltCause as WireHaltCause};
use refit_rollout::BlockedBy;
use refit_types::{Halt, HaltCause};

use crate::host_limit::{host_limit, host_limit_from_wire, whole_percent};
use crate::{moment, timestamp};

/// The text for a blocked group whose reason is unknown and comes without a text.
const UNKNOWN: &str = "blocked for a reason that this version does not know";

/// Converts the reason for the wire.
pub fn blocked_by(reason: &BlockedBy) -> wire::BlockedBy {
    let reason = match reason {
        BlockedBy::Disabled => Reason::Disabled(Disabled {}),
        BlockedBy::Paused { since } => {
            Reason::RolloutPaused(RolloutPaused { since: Some(timestamp(*since)) })
        }
        BlockedBy::GroupPaused { since } => {
            Reason::GroupPaused(GroupPaused { since: Some(timestamp(*since)) })
        }
        BlockedBy::Halted(halt) => Reason::Halted(Halted {
            cause: cause_on_the_wire(halt.cause).into(),
            count: halt.count,
            members: halt.members,
            limit: whole_percent(halt.limit),
            allowed: Some(host_limit(halt.limit)),
        }),
        BlockedBy::Requires(groups) => {
            Reason::Requires(Requires { groups: groups.iter().map(ToString::to_string).collect() })
        }
        BlockedBy::Window { opens } => Reason::Window(Window { opens: Some(timestamp(*opens)) }),
        BlockedBy::NoSlots { limit } => {
            Reason::NoSlots(NoSlots { limit: whole_percent(*limit), allowed: Some(host_limit(*limit)) })
        }
        BlockedBy::NoHosts => Reason::NoHosts(NoHosts {}),
        BlockedBy::NobodyUpgraded { held, failed, timed_out, away } => {
            Reason::NobodyUpgraded(NobodyUpgraded {
                held: *held,
                failed: *failed,
                timed_out: *timed_out,
                away: *away,
            })
        }
        BlockedBy::Away { away, members } => {
            Reason::MembersAway(MembersAway { away: *away, members: *members })
        }
        BlockedBy::UnreadableGroup { key } => {
            Reason::UnreadableGroup(UnreadableGroup { key: key.to_string() })
        }
        BlockedBy::UnreadableHosts { key, count } => {
            Reason::UnreadableHosts(UnreadableHosts { key: key.to_string(), count: *count })
        }
    };
    wire::BlockedBy { reason: Some(reason) }
}

/// Converts the reason from the wire; none for an unknown or invalid one.
pub fn blocked_by_from_wire(blocked: &wire::BlockedBy) -> Option<BlockedBy> {
    Some(match blocked.reason.as_ref()? {
        Reason::Disabled(Disabled {}) => BlockedBy::Disabled,
        Reason::RolloutPaused(paused) => BlockedBy::Paused { since: moment(paused.since)? },
        Reason::GroupPaused(paused) => BlockedBy::GroupPaused { since: moment(paused.since)? },
        Reason::Halted(halted) => BlockedBy::Halted(Halt {
            cause: known_cause(halted.cause())?,
            count: halted.count,
            members: halted.members,
            limit: host_limit_from_wire(halted.allowed.as_ref(), halted.limit)?,
        }),
        Reason::Requires(requires) => {
            let names = requires.groups.iter().map(|name| name.parse().ok());
            BlockedBy::Requires(names.collect::<Option<_>>()?)
        }
        Reason::Window(window) => BlockedBy::Window { opens: moment(window.opens)? },
        Reason::NoSlots(NoSlots { limit, allowed }) => {
            // Any other limit lets one host start at least.
            let limit = host_limit_from_wire(allowed.as_ref(), *limit).filter(|limit| limit.is_zero())?;
            BlockedBy::NoSlots { limit }
        }
        Reason::NoHosts(NoHosts {}) => BlockedBy::NoHosts,
        Reason::NobodyUpgraded(NobodyUpgraded { held, failed, timed_out, away }) => {
            BlockedBy::NobodyUpgraded { held: *held, failed: *failed, timed_out: *timed_out, away: *away }
        }
        Reason::MembersAway(members) => BlockedBy::Away { away: members.away, members: members.members },
        Reason::UnreadableGroup(group) => BlockedBy::UnreadableGroup { key: group.key.as_str().into() },
        Reason::UnreadableHosts(hosts) => {
            BlockedBy::UnreadableHosts { key: hosts.key.as_str().into(), count: hosts.count }
        }
    })
}

/// Why a group makes no progress, as text; empty while it does. `now` is the server's clock. Everything that shows the
/// reason calls this.
pub fn blocked_by_in_words(group: &Group, now: Timestamp) -> String {
    match &group.blocked_by {
        Some(blocked) => match blocked_by_from_wire(blocked) {
            Some(known) => known.in_words(now),
            None if group.waiting.is_empty() => UNKNOWN.into(),
            None => group.waiting.clone(),
        },
        None => group.waiting.clone(),
    }
}

fn cause_on_the_wire(cause: HaltCause) -> WireHaltCause {
    match cause {
        HaltCause::Failed => WireHaltCause::Failed,
        HaltCause::TimedOut => WireHaltCause::TimedOut,
    }
}

fn known_cause(cause: WireHaltCause) -> Option<HaltCause> {
    match cause {
        WireHaltCause::Failed => Some(HaltCause::Failed),
        WireHaltCause::TimedOut => Some(HaltCause::TimedOut),
        WireHaltCause::Unspecified => None,
    }
}

#[cfg(test)]
mod tests {
    use refit_types::HostLimit;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn every_reason() -> Vec<BlockedBy> {
        let halt = |cause, limit: &str| Halt { cause, count: 3, members: 24, limit: limit.parse().unwrap() };
        vec![
            BlockedBy::Disabled,
            BlockedBy::Paused { since: at("2026-11-16T00:00:00.5Z") },
            BlockedBy::GroupPaused { since: at("2026-11-15T22:00:00Z") },
            BlockedBy::Halted(halt(HaltCause::Failed, "10%")),
            BlockedBy::Halted(halt(HaltCause::Failed, "0.5%")),
            BlockedBy::Halted(halt(HaltCause::Failed, "2 hosts")),
            BlockedBy::Halted(halt(HaltCause::TimedOut, "10%")),
            BlockedBy::Requires(vec!["canary".parse().unwrap(), "staging".parse().unwrap()]),
            BlockedBy::Window { opens: at("2026-11-16T02:00:00Z") },
            BlockedBy::NoSlots { limit: HostLimit::ZERO },
            BlockedBy::NoSlots { limit: HostLimit::Hosts(0) },
            BlockedBy::Away { away: 4, members: 9 },
            BlockedBy::NoHosts,
            BlockedBy::NobodyUpgraded { held: 3, failed: 0, timed_out: 0, away: 0 },
            BlockedBy::NobodyUpgraded { held: 3, failed: 2, timed_out: 1, away: 4 },
            BlockedBy::UnreadableGroup { key: "/rollouts/v1/default/groups/canary".into() },
            BlockedBy::UnreadableHosts { key: "/instances/v1/default/1".into(), count: 1 },
            BlockedBy::UnreadableHosts { key: "/instances/v1/default/1".into(), count: 7 },
        ]
    }

    #[test]
    fn every_reason_comes_back_as_it_went_and_makes_the_same_sentence() {
        let now = at("2026-11-16T00:17:49Z");
        let mut sentences = Vec::new();
        for reason in every_reason() {
            let sent = blocked_by(&reason);
            assert_eq!(blocked_by_from_wire(&sent), Some(reason.clone()));
            let group = Group { blocked_by: Some(sent), ..Group::default() };
            assert_eq!(blocked_by_in_words(&group, now), reason.in_words(now));
            sentences.push(blocked_by_in_words(&group, now));
        }
        sentences.sort_unstable();
        sentences.dedup();
        assert_eq!(sentences.len(), every_reason().len(), "{sentences:?}");
    }

    #[test]
    fn a_reason_that_is_not_known_is_told_in_the_words_of_its_writer() {
        let now = at("2026-11-16T00:17:49Z");
        let told = |blocked_by: Option<wire::BlockedBy>, waiting: &str| {
            blocked_by_in_words(&Group { blocked_by, waiting: waiting.into(), ..Group::default() }, now)
        };
        let reason = |reason| Some(wire::BlockedBy { reason: Some(reason) });
        let newer_limit = Some(wire::HostLimit { limit: None });
        let unknown = [
            Some(wire::BlockedBy { reason: None }),
            reason(Reason::Halted(Halted { cause: 77, count: 1, members: 2, limit: 10, allowed: None })),
            reason(Reason::Halted(Halted { cause: 1, count: 1, members: 2, limit: 300, allowed: None })),
            reason(Reason::Halted(Halted {
                cause: 1,
                count: 1,
                members: 2,
                limit: 10,
                allowed: newer_limit,
            })),
            reason(Reason::Window(Window { opens: None })),
            reason(Reason::GroupPaused(GroupPaused { since: None })),
            reason(Reason::NoSlots(NoSlots { limit: 5, allowed: None })),
            reason(Reason::Requires(Requires { groups: vec!["no good\n".into()] })),
        ];
        for blocked in unknown {
            assert_eq!(told(blocked.clone(), "the moon is full"), "the moon is full", "{blocked:?}");
            assert_eq!(told(blocked.clone(), ""), UNKNOWN, "{blocked:?}");
        }
        assert_eq!(told(None, "paused 3 min ago"), "paused 3 min ago", "a server of 0.1");
        assert_eq!(told(None, ""), "", "it is moving");
        let known = reason(Reason::Disabled(Disabled {}));
        assert_eq!(told(known, "words of another time"), "automatic updates are disabled");
    }
}
