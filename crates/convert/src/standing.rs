//! Where a rollout stands, from its status on the wire: what `refitctl autoupdate plan` and the dashboard preview from.

use refit_proto::rollouts::v1::{Group, GroupState, Rollout};
use refit_rollout::{BlockedBy, GroupPhase, GroupStanding, Standing};
use refit_types::{GroupName, Span};

use crate::{blocked_by_from_wire, moment};

/// Converts the status of a rollout.
pub fn standing(rollout: &Rollout) -> Standing {
    let groups = rollout.groups.iter().filter_map(|group| {
        let name: GroupName = group.name.parse().ok()?;
        Some((name, GroupStanding { phase: phase(group), paused: moment(group.paused_at) }))
    });
    Standing { paused: moment(rollout.paused_at), groups: groups.collect() }
}

fn phase(group: &Group) -> GroupPhase {
    let window = moment(group.opens_at).zip(moment(group.closes_at)).map(|(start, end)| Span { start, end });
    match (group.known_state(), window) {
        (GroupState::Succeeded, _) => GroupPhase::Succeeded,
        (GroupState::Active, Some(window)) => GroupPhase::Open(window),
        (GroupState::Halted, _) => {
            let reason = group.blocked_by.as_ref().and_then(blocked_by_from_wire);
            GroupPhase::Halted(reason.and_then(|reason| match reason {
                BlockedBy::Halted(halt) => Some(halt),
                _ => None,
            }))
        }
        _ => GroupPhase::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use refit_types::{Halt, HaltCause, HostLimit};

    use super::*;
    use crate::{blocked_by, timestamp};

    #[test]
    fn pauses_halts_and_successes_are_taken_over() {
        let at: Timestamp = "2026-11-16T00:17:49Z".parse().unwrap();
        let halt = Halt { cause: HaltCause::Failed, count: 1, members: 4, limit: HostLimit::Hosts(0) };
        let group = |name: &str, state: GroupState, reason: Option<BlockedBy>| Group {
            name: name.into(),
            state_code: state.into(),
            blocked_by: reason.as_ref().map(blocked_by),
            opens_at: Some(timestamp(at)),
            closes_at: Some(timestamp(at)),
            ..Group::default()
        };
        let paused = Group { paused_at: Some(timestamp(at)), ..group("e", GroupState::Scheduled, None) };
        let rollout = Rollout {
            paused_at: Some(timestamp(at)),
            groups: vec![
                group("a", GroupState::Succeeded, None),
                group("b", GroupState::Active, None),
                group("c", GroupState::Halted, Some(BlockedBy::Halted(halt))),
                group("d", GroupState::Halted, Some(BlockedBy::Paused { since: at })),
                paused,
            ],
            ..Rollout::default()
        };
        let standing = standing(&rollout);
        let open = GroupPhase::Open(Span { start: at, end: at });
        let phases = [
            GroupPhase::Succeeded,
            open,
            GroupPhase::Halted(Some(halt)),
            GroupPhase::Halted(None),
            GroupPhase::Waiting,
        ];
        assert_eq!(standing.groups.values().map(|group| group.phase).collect::<Vec<_>>(), phases);
        let paused: Vec<bool> = standing.groups.values().map(|group| group.paused.is_some()).collect();
        assert_eq!((standing.paused, paused), (Some(at), vec![false, false, false, false, true]));
        let anew = standing.for_new_epoch();
        assert!(anew.groups.values().all(|group| group.phase == GroupPhase::Waiting));
        let e: GroupName = "e".parse().unwrap();
        assert_eq!((anew.paused, anew.groups[&e].paused), (Some(at), Some(at)), "a pause outlasts a version");
    }
}
