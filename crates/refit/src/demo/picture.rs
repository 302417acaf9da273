use refit_types::{UpdateFailure, Version};

/// How everything is at one moment, as the control plane and the disks of the hosts tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Picture {
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
    /// Why it does not move; empty if it does.
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
}

/// What a host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It has not been told to upgrade.
    Waits,
    /// It fetches and checks the archive.
    Fetches,
    /// It switched, and its agent has not said anything yet.
    Tries,
    /// The new agent runs; its updater watches whether it goes on so.
    Proves,
    Upgraded,
    /// The new version did not work, and the one before runs again.
    WentBack,
    /// It did not work, and nothing runs yet.
    Failed,
}

impl Seen {
    pub(super) fn doing(&self, target: &str) -> Doing {
        let is =
            |version: &Option<Version>| version.as_ref().is_some_and(|version| version.to_string() == target);
        let failed = self.failure.as_ref().is_some_and(|failure| failure.version.to_string() == target);
        let runs = self.is_connected && is(&self.version);
        match () {
            () if runs && self.is_switching => Doing::Proves,
            () if runs => Doing::Upgraded,
            () if is(&self.active) && self.is_switching => Doing::Tries,
            () if self.outcome == "in_flight" && !failed => Doing::Fetches,
            () if self.outcome == "in_flight" && self.is_switching => Doing::Fetches,
            () if failed && self.is_connected => Doing::WentBack,
            () if failed || matches!(self.outcome.as_str(), "failed" | "timed_out") => Doing::Failed,
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
            Doing::WentBack => format!("went back: {target} failed{}", self.why()),
            Doing::Failed => format!("{target} failed{}", self.why()),
        }
    }

    fn why(&self) -> String {
        let failure = self.failure.as_ref();
        failure.map(|failure| format!(" at {}: {}", failure.step, failure.reason)).unwrap_or_default()
    }

    fn shown_version(&self) -> String {
        self.version.as_ref().map_or_else(|| "-".into(), ToString::to_string)
    }

    /// The version that it runs, for a table.
    pub(super) fn runs(&self) -> String {
        self.shown_version()
    }
}

impl Picture {
    /// Whether all hosts are connected and run that version.
    pub(super) fn all_run(&self, version: &Version) -> bool {
        self.hosts.iter().all(|host| host.is_connected && host.version.as_ref() == Some(version))
    }

    /// Whether nothing goes on any more, and nothing will by itself.
    pub(super) fn is_at_rest(&self, target: &Version) -> bool {
        let halted = self.groups.iter().any(|group| group.state == "halted");
        let succeeded = self.groups.iter().all(|group| group.state == "succeeded");
        let flies = self.groups.iter().any(|group| group.state == "active" || group.in_flight > 0);
        let switches = self.hosts.iter().any(|host| host.is_switching || !host.is_connected);
        self.version == target.to_string() && (halted || succeeded) && !flies && !switches
    }

    /// What differs from an earlier one, a line for each.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for group in &self.groups {
            let old = before.groups.iter().find(|old| old.name == group.name);
            let state_changed = old.is_none_or(|old| old.state != group.state);
            let waits = old.is_none_or(|old| old.waiting != group.waiting) && !group.waiting.is_empty();
            match (group.state.as_str(), state_changed) {
                ("halted", true) => lines.push(format!("{}: {}", group.name, group.waiting)),
                ("succeeded", true) if group.hosts > 0 => {
                    lines.push(format!(
                        "{}: succeeded, {} of {} upgraded",
                        group.name, group.upgraded, group.hosts
                    ));
                }
                (state, true) if waits => {
                    lines.push(format!("{}: {state}, waits: {}", group.name, group.waiting))
                }
                ("active", true) => {
                    lines.push(format!("{}: active, at most {} at the same time", group.name, group.limit));
                }
                (state, true) => lines.push(format!("{}: {state}", group.name)),
                ("scheduled", false) if waits => {
                    lines.push(format!("{}: waits: {}", group.name, group.waiting))
                }
                _ => {}
            }
        }
        for host in &self.hosts {
            let old = before.hosts.iter().find(|old| old.name == host.name);
            let old_version = old.and_then(|old| old.version.as_ref());
            match (old_version, &host.version) {
                (Some(old), Some(new)) if old != new => lines.push(format!("{}: {old} -> {new}", host.name)),
                (None, Some(new)) => lines.push(format!("{}: joined, runs {new}", host.name)),
                _ => {}
            }
            let (now, then) = (host.doing(&self.version), old.map(|old| old.doing(&before.version)));
            let told = matches!(
                now,
                Doing::Fetches | Doing::Tries | Doing::Proves | Doing::WentBack | Doing::Failed
            );
            if told && then != Some(now) {
                lines.push(format!("{}: {}", host.name, host.in_words(&self.version)));
            }
            if now == Doing::WentBack && then != Some(now) {
                lines.push(format!("{}: {} runs again", host.name, host.shown_version()));
            }
        }
        lines
    }
}
