//! One observation of the demo's groups and hosts, and the differences between two of them as text. No I/O.

use refit_types::{UpdateFailure, Version};

/// All groups and hosts at one moment, from the control plane and from the disks of the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) version: String,
    pub(super) groups: Vec<Group>,
    pub(super) hosts: Vec<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) state: String,
    /// All that there are, members or not yet.
    pub(super) hosts: u32,
    pub(super) upgraded: u32,
    pub(super) in_flight: u32,
    /// Those that failed or timed out.
    pub(super) failed: u32,
    pub(super) limit: u32,
    /// Why it makes no progress; empty if it does.
    pub(super) waiting: String,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) group: &'static str,
    /// What it reports to run.
    pub(super) version: Option<Version>,
    pub(super) is_connected: bool,
    /// What the rollout says of it.
    pub(super) outcome: String,
    pub(super) failure: Option<UpdateFailure>,
    /// What its disk points to.
    pub(super) active: Option<Version>,
    pub(super) is_switching: bool,
    /// Whether it has switched already in its present attempt.
    pub(super) has_tried: bool,
}

/// The state of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It has not been told to upgrade.
    Waits,
    /// It fetches and checks the archive.
    Fetches,
    /// It switched, and its agent has not said anything yet.
    Tries,
    /// The new agent runs; its updater observes it before committing.
    Proves,
    Upgraded,
    /// The new version did not work, and its updater rolls back.
    GoesBack,
    /// The new version did not work, and the one before runs again.
    WentBack,
    /// It did not work, and nothing runs yet.
    Failed,
}

impl Seen {
    /// Whether the rollout counts it as failed or timed out.
    pub(super) fn is_failed(&self) -> bool {
        matches!(self.outcome.as_str(), "failed" | "timed_out")
    }

    pub(super) fn doing(&self, target: &str) -> Doing {
        let is =
            |version: &Option<Version>| version.as_ref().is_some_and(|version| version.to_string() == target);
        let failed = self.failure.as_ref().is_some_and(|failure| failure.version.to_string() == target);
        let runs = self.is_connected && is(&self.version);
        match () {
            () if runs && (self.is_switching || self.outcome == "in_flight") => Doing::Proves,
            () if runs => Doing::Upgraded,
            () if is(&self.active) && self.is_switching => Doing::Tries,
            () if self.has_tried && !failed => Doing::GoesBack,
            () if self.outcome == "in_flight" && !failed => Doing::Fetches,
            () if failed && self.is_connected => Doing::WentBack,
            () if failed || self.is_failed() => Doing::Failed,
            () => Doing::Waits,
        }
    }

    /// What it does, in words.
    pub(super) fn in_words(&self, target: &str) -> String {
        match self.doing(target) {
            Doing::Waits if self.version.is_none() => "joins".into(),
            Doing::Waits if !self.is_connected => "is away".into(),
            Doing::Waits => "waits".into(),
            Doing::Fetches => format!("fetches {target}"),
            Doing::Tries => format!("tries {target}: up to 60 s to be healthy"),
            Doing::Proves => format!("runs {target}, and proves it for 5 s"),
            Doing::Upgraded => "upgraded".into(),
            Doing::GoesBack => format!("goes back: {target} is not healthy"),
            Doing::WentBack => format!("runs {} again: {target} failed{}", self.runs(), self.why()),
            Doing::Failed => format!("{target} failed{}", self.why()),
        }
    }

    fn why(&self) -> String {
        let failure = self.failure.as_ref();
        failure.map(|failure| format!(" at {}: {}", failure.step, failure.reason)).unwrap_or_default()
    }

    /// The differences from an earlier state and its target version, a line for each.
    fn changes_since(&self, old: Option<(&Self, &str)>, target: &str) -> Vec<String> {
        let mut lines = Vec::new();
        match (old.and_then(|(old, _)| old.version.as_ref()), &self.version) {
            (Some(old), Some(new)) if old != new => lines.push(format!("{}: {old} -> {new}", self.name)),
            (None, Some(new)) => lines.push(format!("{}: joined, runs {new}", self.name)),
            _ => {}
        }
        let (now, then) = (self.doing(target), old.map(|(old, target)| old.doing(target)));
        let is_told = match now {
            Doing::Waits => false,
            Doing::Upgraded => then.is_some(),
            _ => true,
        };
        if is_told && then != Some(now) {
            lines.push(format!("{}: {}", self.name, self.in_words(target)));
        }
        lines
    }

    /// The version that it runs, for people.
    pub(super) fn runs(&self) -> String {
        self.version.as_ref().map_or_else(|| "-".into(), ToString::to_string)
    }
}

impl Snapshot {
    /// Whether all hosts are connected and run that version.
    pub(super) fn all_run(&self, version: &Version) -> bool {
        self.hosts.iter().all(|host| host.is_connected && host.version.as_ref() == Some(version))
    }

    /// Whether a group has been opened.
    pub(super) fn has_begun(&self) -> bool {
        self.groups.iter().any(|group| group.state != "scheduled")
    }

    /// Whether the rollout is over: nothing is in progress, and nothing will start by itself.
    pub(super) fn is_at_rest(&self, target: &Version) -> bool {
        let halted = self.groups.iter().any(|group| group.state == "halted");
        let succeeded = self.groups.iter().all(|group| group.state == "succeeded");
        let flies = self.groups.iter().any(|group| group.state == "active" || group.in_flight > 0);
        let switches = self.hosts.iter().any(|host| host.is_switching || !host.is_connected);
        self.version == target.to_string() && (halted || succeeded) && !flies && !switches
    }

    /// Whether the reason of every failure is known.
    pub(super) fn is_explained(&self) -> bool {
        self.hosts.iter().all(|host| !host.is_failed() || host.failure.is_some())
    }

    /// This snapshot, with facts that only an earlier one has: that a host had switched already.
    pub(super) fn remembering(mut self, before: &Self) -> Self {
        for host in &mut self.hosts {
            let old = before.hosts.iter().find(|old| old.name == host.name);
            let tries = host.doing(&self.version) == Doing::Tries;
            let had_tried = old.is_some_and(|old| old.has_tried) && host.outcome == "in_flight";
            host.has_tried = tries || had_tried;
        }
        self
    }

    /// What differs from an earlier one, a line for each: a group begins before its hosts and ends after them.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for group in &self.groups {
            let old = before.groups.iter().find(|old| old.name == group.name);
            let hosts = self.hosts.iter().filter(|host| host.group == group.name);
            let hosts = hosts.flat_map(|host| {
                let old =
                    before.hosts.iter().find(|old| old.name == host.name).map(|old| (old, &*before.version));
                host.changes_since(old, &self.version)
            });
            match group.change_since(old) {
                Some(change) if group.state == "active" || group.state == "scheduled" => {
                    lines.push(change);
                    lines.extend(hosts);
                }
                change => {
                    lines.extend(hosts);
                    lines.extend(change);
                }
            }
        }
        lines
    }
}

impl Group {
    fn change_since(&self, old: Option<&Self>) -> Option<String> {
        let Self { name, state, upgraded, hosts, limit, waiting, .. } = self;
        let has_new_state = old.is_none_or(|old| old.state != *state);
        let has_new_reason = old.is_none_or(|old| old.waiting != *waiting) && !waiting.is_empty();
        Some(match (state.as_str(), has_new_state) {
            ("halted", true) => format!("{name}: {waiting}"),
            ("succeeded", true) => format!("{name}: succeeded, {upgraded} of {hosts} upgraded"),
            ("active", true) => format!("{name}: active, at most {limit} at the same time"),
            (_, true) if waiting.is_empty() => format!("{name}: {state}"),
            (_, true) => format!("{name}: {state}, {waiting}"),
            (_, false) if has_new_reason => format!("{name}: {waiting}"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Seen {
        Seen {
            name: "staging1".into(),
            group: "staging",
            version: "1.0.0".parse().ok(),
            is_connected: true,
            outcome: "in_flight".into(),
            failure: None,
            active: "1.0.0".parse().ok(),
            is_switching: false,
            has_tried: false,
        }
    }

    fn snapshot(host: Seen) -> Snapshot {
        let group = Group {
            name: "staging".into(),
            state: "active".into(),
            hosts: 1,
            upgraded: 0,
            in_flight: 1,
            failed: 0,
            limit: 1,
            waiting: String::new(),
        };
        Snapshot { version: "1.1.0".into(), groups: vec![group], hosts: vec![host] }
    }

    /// What is told of a host that goes through these.
    fn told(hosts: Vec<Seen>) -> Vec<String> {
        let mut before = snapshot(Seen { outcome: String::new(), ..host() });
        let mut lines = Vec::new();
        for host in hosts {
            let now = snapshot(host).remembering(&before);
            lines.extend(now.changes_since(&before));
            before = now;
        }
        lines
    }

    #[test]
    fn an_upgrade_is_told_step_by_step() {
        let (old, new) = (host(), "1.1.0".parse::<Version>().ok());
        let tries = Seen { active: new.clone(), is_switching: true, is_connected: false, ..old.clone() };
        let proves = Seen { version: new.clone(), is_connected: true, ..tries.clone() };
        let settled = Seen { is_switching: false, ..proves.clone() };
        let done = Seen { outcome: "upgraded".into(), ..settled.clone() };
        assert_eq!(
            told(vec![old, tries, proves, settled, done]),
            [
                "staging1: fetches 1.1.0",
                "staging1: tries 1.1.0: up to 60 s to be healthy",
                "staging1: 1.0.0 -> 1.1.0",
                "staging1: runs 1.1.0, and proves it for 5 s",
                "staging1: upgraded",
            ]
        );
    }

    #[test]
    fn a_host_that_goes_back_fetches_nothing() {
        let tries = Seen { active: "1.1.0".parse().ok(), is_switching: true, is_connected: false, ..host() };
        let back = Seen { active: "1.0.0".parse().ok(), ..tries.clone() };
        let proves_old = Seen { is_switching: false, is_connected: true, ..back.clone() };
        let failure = UpdateFailure {
            attempt: 1,
            version: "1.1.0".parse().unwrap(),
            step: "health".into(),
            reason: "no agent answers".into(),
            at: jiff::Timestamp::UNIX_EPOCH,
            agent: None,
        };
        let told_of = Seen { failure: Some(failure), outcome: "failed".into(), ..proves_old.clone() };
        let again = Seen { failure: None, ..host() };
        assert_eq!(
            told(vec![tries, back, proves_old, told_of, again]),
            [
                "staging1: tries 1.1.0: up to 60 s to be healthy",
                "staging1: goes back: 1.1.0 is not healthy",
                "staging1: runs 1.0.0 again: 1.1.0 failed at health: no agent answers",
                "staging1: fetches 1.1.0",
            ]
        );
    }
}
