//! The reason why a group makes no progress, as data and as text.

use jiff::{SignedDuration, Timestamp};
use refit_types::{GroupName, Halt, HostLimit};

/// Why a group is not moving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockedBy {
    /// Updates are switched off.
    Disabled,
    /// An operator paused the rollout.
    Paused {
        /// Since when.
        since: Timestamp,
    },
    /// An operator paused this group.
    GroupPaused {
        /// Since when.
        since: Timestamp,
    },
    /// Too many hosts failed or timed out.
    Halted(Halt),
    /// Groups that it requires have not succeeded.
    Requires(Vec<GroupName>),
    /// Its window is closed.
    Window {
        /// When it opens.
        opens: Timestamp,
    },
    /// No host may be in flight.
    NoSlots {
        /// As the group says it.
        limit: HostLimit,
    },
    /// The group's record cannot be read: a newer release may have written it.
    UnreadableGroup {
        /// Where it is stored.
        key: Box<str>,
    },
    /// Records of hosts of the group cannot be read.
    UnreadableHosts {
        /// Where the first of them is stored.
        key: Box<str>,
        /// How many there are.
        count: u32,
    },
    /// It selects no host that is known.
    NoHosts,
    /// No member runs the version, and none can be upgraded now.
    NobodyUpgraded {
        /// Members whose updaters refuse it.
        held: u32,
        /// Members that failed.
        failed: u32,
        /// Members that timed out.
        timed_out: u32,
        /// Hosts that were not connected when it opened.
        away: u32,
    },
    /// Members that have not started are disconnected, and too many to succeed without them.
    Away {
        /// How many.
        away: u32,
        /// Of how many members.
        members: u32,
    },
}

impl BlockedBy {
    /// Whether it ends only when hosts change or an operator acts: time alone does not help.
    pub fn is_stuck(&self) -> bool {
        matches!(self, Self::NoHosts | Self::NobodyUpgraded { .. })
    }

    /// The reason in words.
    pub fn in_words(&self, now: Timestamp) -> String {
        let ago = |since: &Timestamp| in_words(now.duration_since(*since));
        match self {
            Self::Disabled => "automatic updates are disabled".into(),
            Self::Paused { since } => format!("the rollout was paused {} ago", ago(since)),
            Self::GroupPaused { since } => format!("paused {} ago", ago(since)),
            Self::Halted(halt) => format!("halted: {halt}"),
            Self::Requires(groups) => {
                let names: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
                format!("waiting for {}", names.join(", "))
            }
            Self::Window { opens } => format!("window opens in {}", in_words(opens.duration_since(now))),
            Self::NoSlots { limit } => format!("max_in_flight is {limit}: no host may start"),
            Self::UnreadableGroup { key } => {
                format!("blocked: the record {key} cannot be read; was it written by a newer release?")
            }
            Self::UnreadableHosts { key, count: 1 } => {
                format!("blocked: the host record {key} cannot be read; was it written by a newer release?")
            }
            Self::UnreadableHosts { key, count } => format!(
                "blocked: {count} host records cannot be read, {key} among them; were they written by a newer \
                 release?"
            ),
            Self::NoHosts => "blocked: selects no hosts".into(),
            Self::NobodyUpgraded { held, failed, timed_out, away } => {
                let counts = [(held, "held"), (failed, "failed"), (timed_out, "timed out"), (away, "away")];
                let told = counts.iter().filter(|(count, _)| **count > 0);
                let told: Vec<String> = told.map(|(count, what)| format!(", {count} {what}")).collect();
                format!("blocked: nobody could be upgraded{}", told.concat())
            }
            Self::Away { away, members } => format!("waiting for {away} of {members} members that are away"),
        }
    }
}

/// A length of time in its two largest units.
pub(crate) fn in_words(length: SignedDuration) -> String {
    let seconds = length.as_secs().max(0);
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let Some(first) = units.iter().position(|(size, _)| seconds >= *size) else { return "0 s".into() };
    let (size, name) = units[first];
    let largest = format!("{} {name}", seconds / size);
    match units.get(first + 1) {
        Some((smaller, name)) if seconds % size / smaller > 0 => {
            format!("{largest} {} {name}", seconds % size / smaller)
        }
        _ => largest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_as_people_do() {
        let told = |seconds| in_words(SignedDuration::from_secs(seconds));
        assert_eq!(
            [told(-5), told(0), told(59), told(60), told(3 * 3600), told(3 * 3600 + 65), told(90_000)],
            ["0 s", "0 s", "59 s", "1 min", "3 h", "3 h 1 min", "1 d 1 h"]
        );
    }
}
