//! A preview as text, for `refitctl autoupdate plan` and the dashboard.

use jiff::Timestamp;
use refit_types::HostLimit;

use super::{Blocker, GroupPhase, GroupPreview, Preview};
use crate::blocked_by::in_words;
use crate::table::{Align, table};

impl Preview {
    /// A table of the groups, and what would block them.
    pub fn to_text(&self) -> String {
        let mut lines = vec![format!(
            "Version {}, schedule {}, as of {}",
            self.version,
            self.schedule.as_str(),
            utc(self.at)
        )];
        lines.extend(self.blocked.iter().map(|blocker| format!("! {}", blocker.in_words(self.at))));
        if !self.groups.is_empty() {
            lines.extend([String::new(), self.table(), String::new()]);
        }
        for group in &self.groups {
            lines.extend(group.notes(self.at));
        }
        if self.ungrouped > 0 {
            lines.push(format!(
                "{} of {} hosts are in no group and follow agent_auto_update; {} of them have the version.",
                self.ungrouped, self.hosts, self.ungrouped_on_version
            ));
        }
        lines.push(match self.ends {
            Some(ends) => format!(
                "Done {} at the earliest, if every host takes {} s: {} from now.",
                utc(ends),
                self.seconds_each,
                in_words(ends.duration_since(self.at))
            ),
            None if self.groups.is_empty() => "There are no groups in this schedule.".into(),
            None if self.has_succeeded() => "Every group has succeeded.".into(),
            None => "It does not end by itself.".into(),
        });
        lines.join("\n")
    }

    /// Whether nothing is left to do: there are groups, and all have succeeded.
    pub fn has_succeeded(&self) -> bool {
        !self.groups.is_empty() && self.groups.iter().all(|group| group.phase == GroupPhase::Succeeded)
    }

    fn table(&self) -> String {
        let rows = self.groups.iter().map(|group| {
            let after: Vec<String> = group.requires.iter().map(ToString::to_string).collect();
            vec![
                group.name.to_string(),
                group.opens_in_words(),
                group.timezone.clone(),
                group.opens.map_or_else(|| "-".into(), minute),
                group.ends.map_or_else(|| "-".into(), minute),
                group.takes.to_string(),
                group.to_upgrade.to_string(),
                group.on_version.to_string(),
                group.held.to_string(),
                group.away.to_string(),
                group.at_once(),
                if after.is_empty() { "-".into() } else { after.join(",") },
            ]
        });
        let headings = [
            "GROUP",
            "OPENS",
            "ZONE",
            "OPENS (UTC)",
            "DONE BY (UTC)",
            "HOSTS",
            "TO DO",
            "HAVE IT",
            "HELD",
            "AWAY",
            "AT ONCE",
            "AFTER",
        ];
        use Align::{Left, Right};
        let aligned = [Left, Left, Left, Left, Left, Right, Right, Right, Right, Right, Right, Left];
        table(&headings, &aligned, rows, usize::MAX)
    }
}

impl GroupPreview {
    /// How many hosts may be in flight, and which share of the members that is if the group says a share.
    pub fn at_once(&self) -> String {
        match self.max_in_flight {
            HostLimit::Share(share) => format!("{} ({share})", self.limit),
            HostLimit::Hosts(hosts) => hosts.to_string(),
        }
    }

    fn opens_in_words(&self) -> String {
        match (self.phase, &self.opens_local) {
            (GroupPhase::Succeeded, _) => "succeeded".into(),
            (GroupPhase::Open(_), Some(_)) => "is open now".into(),
            (_, Some(opens)) => opens.clone(),
            (GroupPhase::Halted(_), None) => "halted".into(),
            (_, None) => "-".into(),
        }
    }

    fn notes(&self, now: Timestamp) -> Vec<String> {
        let mut notes: Vec<String> = self
            .blocked
            .iter()
            .map(|blocker| format!("! {}: {}", self.name, blocker.in_words(now)))
            .collect();
        if self.unanswered > 0 {
            let told = self.unanswered_examples.iter().map(|absent| match absent.host.as_str() {
                "" => format!("no label {:?}", absent.label),
                host => format!("{host} has no label {:?}", absent.label),
            });
            let more = if self.unanswered as usize > self.unanswered_examples.len() { ", …" } else { "" };
            notes.push(format!(
                "! {}: does not take {} hosts because a label is absent: {}{more}",
                self.name,
                self.unanswered,
                told.collect::<Vec<_>>().join(", ")
            ));
        }
        notes
    }
}

impl Blocker {
    /// The reason in words.
    pub fn in_words(&self, now: Timestamp) -> String {
        match self {
            Self::Disabled => "automatic updates are disabled: nothing is started".into(),
            Self::Paused { since } => {
                format!(
                    "the rollout was paused {} ago: nothing is started",
                    in_words(now.duration_since(*since))
                )
            }
            Self::GroupPaused { since } => {
                format!("paused {} ago: nothing is started", in_words(now.duration_since(*since)))
            }
            Self::Halted { halt: Some(halt) } => format!("halted: {halt}"),
            Self::Halted { halt: None } => "has halted".into(),
            Self::Immediate => {
                "the schedule is immediate: every host is told at once, groups do not count".into()
            }
            Self::NoSlots { limit } => format!("max_in_flight is {limit}: no host may start"),
            Self::NoHosts { hosts } => format!("selects none of {hosts} hosts"),
            Self::NobodyUpgraded { held, away } => {
                let counts = [(held, "held"), (away, "away")];
                let told = counts.iter().filter(|(count, _)| **count > 0);
                let told: Vec<String> = told.map(|(count, what)| format!(", {count} {what}")).collect();
                format!("nobody can be upgraded{}", told.concat())
            }
            Self::Requires { group } => format!("requires {group}, which does not end"),
            Self::NotWithinAWeek { opens: Some(opens) } => {
                format!("does not open within a week: opens in {}", in_words(opens.duration_since(now)))
            }
            Self::NotWithinAWeek { opens: None } => "has no window".into(),
            Self::TooLong => "needs more than a year at this pace".into(),
        }
    }
}

fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

fn utc(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
