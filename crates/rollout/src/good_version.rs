//! Which version new hosts are named: the one that is rolled out, or, while that is stopped, the last one whose rollout
//! ended well. Pure; the servers store which one that is.

use refit_types::{Group, GroupRecord, GroupState, Version};

/// Why new hosts do not get the version that is being rolled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// An operator paused the rollout.
    Paused,
    /// A group has halted.
    Halted,
    /// This server cannot tell whether it is stopped.
    Unclear,
}

impl Stopped {
    /// The reason in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Halted => "halted",
            Self::Unclear => "unclear",
        }
    }

    /// Why a rollout with these group records is stopped, if it is. None is a record that cannot be read.
    pub fn of<'a>(
        is_paused: bool,
        groups: impl IntoIterator<Item = Option<&'a GroupRecord>>,
    ) -> Option<Self> {
        if is_paused {
            return Some(Self::Paused);
        }
        let mut stopped = None;
        for record in groups {
            match record {
                Some(record) if record.is_halted() => return Some(Self::Halted),
                Some(_) => {}
                None => stopped = Some(Self::Unclear),
            }
        }
        stopped
    }
}

/// Which version a host is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedVersion<'a> {
    /// The one that is rolled out.
    Target,
    /// The last one whose rollout ended well.
    LastGood(&'a Version),
    /// The one that is rolled out, for lack of another. A new host should not install it.
    Withheld(Stopped),
}

impl<'a> NamedVersion<'a> {
    /// What a host is named of which there is no record.
    pub fn for_new_host(stopped: Option<Stopped>, last_good: Option<&'a Version>) -> Self {
        match (stopped, last_good) {
            (None, _) => Self::Target,
            (Some(_), Some(good)) => Self::LastGood(good),
            (Some(stopped), None) => Self::Withheld(stopped),
        }
    }
}

/// The hosts that no group takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ungrouped {
    /// How many there are.
    pub hosts: u32,
    /// How many of them have the version.
    pub on_version: u32,
    /// How many of them are connected and could have the version, and do not.
    pub behind: u32,
}

/// Whether the rollout of an epoch has ended well: every group has succeeded, and some host was upgraded. Without groups
/// it has no end of its own: then more than half of the hosts have the version, and nobody who is connected is behind.
/// `record` gives a group's record in the epoch, and `ungrouped` is none while not all hosts are known.
pub fn has_ended_well(
    groups: &[Group],
    record: impl Fn(&Group) -> Option<GroupRecord>,
    ungrouped: Option<Ungrouped>,
) -> bool {
    if groups.is_empty() {
        return ungrouped
            .is_some_and(|hosts| hosts.behind == 0 && hosts.on_version > hosts.hosts - hosts.on_version);
    }
    let records: Option<Vec<GroupRecord>> = groups.iter().map(record).collect();
    records.is_some_and(|records| {
        records.iter().all(|record| record.state == GroupState::Succeeded)
            && records.iter().any(|record| record.upgraded > 0)
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use refit_types::{Halt, HaltCause, HostLimit};

    use super::*;

    fn record(state: GroupState, upgraded: u32) -> GroupRecord {
        GroupRecord { state, upgraded, ..GroupRecord::fresh(1, Timestamp::UNIX_EPOCH) }
    }

    #[test]
    fn only_what_somebody_runs_has_ended_well() {
        let groups = ["a", "b"].map(|name| Group::named(name.parse().unwrap()));
        let ended = |records: [Option<GroupRecord>; 2]| {
            let nth = |group: &Group| records[usize::from(group.name.as_str() == "b")].clone();
            has_ended_well(&groups, nth, Some(Ungrouped { hosts: 5, on_version: 5, behind: 0 }))
        };
        use GroupState::{Active, Succeeded};
        let record = |state, upgraded| Some(record(state, upgraded));
        assert!(ended([record(Succeeded, 3), record(Succeeded, 0)]), "one was marked done");
        assert!(!ended([record(Succeeded, 3), record(Active, 4)]));
        assert!(!ended([record(Succeeded, 0), record(Succeeded, 0)]), "nobody runs it");
        assert!(!ended([record(Succeeded, 3), None]), "its record cannot be read");
    }

    #[test]
    fn a_version_without_groups_has_ended_well_when_nobody_is_behind() {
        let ended = |hosts, on_version, behind| {
            has_ended_well(&[], |_| None, Some(Ungrouped { hosts, on_version, behind }))
        };
        assert!(ended(3, 3, 0) && !ended(3, 2, 1) && !ended(0, 0, 0));
        assert!(ended(3, 2, 0), "one is disconnected or held");
        assert!(!ended(4, 2, 0), "most of the fleet may be disconnected for a moment");
        assert!(!has_ended_well(&[], |_| None, None), "hosts are not known");
    }

    #[test]
    fn new_hosts_get_what_works() {
        let halted = record(
            GroupState::Halted(Halt {
                cause: HaltCause::Failed,
                count: 1,
                members: 1,
                limit: HostLimit::Hosts(0),
            }),
            0,
        );
        let active = record(GroupState::Active, 0);
        assert_eq!(Stopped::of(false, [Some(&active)]), None);
        assert_eq!(Stopped::of(true, [Some(&active)]), Some(Stopped::Paused));
        assert_eq!(Stopped::of(false, [None, Some(&active), Some(&halted)]), Some(Stopped::Halted));
        assert_eq!(Stopped::of(false, [Some(&active), None]), Some(Stopped::Unclear));

        let good = "15.1.0".parse().unwrap();
        let named = NamedVersion::for_new_host;
        assert_eq!(named(None, Some(&good)), NamedVersion::Target);
        assert_eq!(named(Some(Stopped::Halted), Some(&good)), NamedVersion::LastGood(&good));
        assert_eq!(named(Some(Stopped::Paused), None), NamedVersion::Withheld(Stopped::Paused));
    }
}
