//! What went wrong, and at which step: kept for the operator and the control plane.

use std::fmt;
use std::str::FromStr;

/// The steps and their words in one list, so that none is left out when a word is read.
macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $step:ident => $word:literal,)+) => {
        /// A step that failed. Its word is in `status.json`, in heartbeats and in logs, and other versions read it there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FailedStep {
            $($(#[doc = $doc])+ $step,)+
        }

        impl FailedStep {
            const ALL: &'static [Self] = &[$(Self::$step),+];

            /// The word that it is known by outside.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$step => $word,)+
                }
            }
        }
    };
}

steps! {
    /// The control plane was asked whether the version is still due.
    Find => "find",
    /// The version was brought onto the disk.
    Download => "download",
    /// Every binary of it was run.
    Validate => "validate",
    /// The database of what is left was kept.
    Backup => "backup",
    /// Links and units were put in place.
    Link => "link",
    /// The service manager was asked something beside stopping and starting the agent.
    Service => "service",
    /// The way back was made durable.
    Journal => "journal",
    /// The agent was stopped.
    Stop => "stop",
    /// The version got back the database that it had.
    Restore => "restore",
    /// The pointer was moved.
    Switch => "switch",
    /// The agent was reloaded or started.
    Restart => "restart",
    /// The agent was watched.
    Health => "health",
    /// The way back was given up.
    Settle => "settle",
    /// The way back was taken.
    Undo => "undo",
    /// What an updater was cut off in the middle of was read.
    Recover => "recover",
    /// The system's package was replaced.
    Package => "package",
    /// Everything was removed.
    Uninstall => "uninstall",
}

/// A stored word that this release knows no step for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a step that this release knows")]
pub struct UnknownStep;

impl FromStr for FailedStep {
    type Err = UnknownStep;

    fn from_str(word: &str) -> Result<Self, UnknownStep> {
        Self::ALL.iter().copied().find(|step| step.as_str() == word).ok_or(UnknownStep)
    }
}

impl AsRef<str> for FailedStep {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FailedStep {
    /// Whether a failure says something about the version, and not about the host or the network: only then is it
    /// of use to wait before the next try.
    pub fn blames_the_version(self) -> bool {
        match self {
            Self::Validate | Self::Restart | Self::Health => true,
            Self::Find
            | Self::Download
            | Self::Backup
            | Self::Link
            | Self::Service
            | Self::Journal
            | Self::Stop
            | Self::Restore
            | Self::Switch
            | Self::Settle
            | Self::Undo
            | Self::Recover
            | Self::Package
            | Self::Uninstall => false,
        }
    }

    /// A failure of this step.
    pub(crate) fn failure(self, reason: impl fmt::Display) -> StepFailed {
        StepFailed { step: self, reason: reason.to_string() }
    }

    /// Makes a failure of this step of whatever stood in its way.
    pub(crate) fn failed<E: fmt::Display>(self) -> impl Fn(E) -> StepFailed {
        move |error| self.failure(error)
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A step that failed, and why: kept for the operator and the control plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {reason}")]
pub struct StepFailed {
    /// Which step.
    pub step: FailedStep,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control planes and updaters of other versions know these words: none may change.
    #[test]
    fn the_words_are_what_other_versions_know() {
        let words: Vec<&str> = FailedStep::ALL.iter().map(|step| step.as_str()).collect();
        let known = "find download validate backup link service journal stop restore switch restart health settle undo \
            recover package uninstall";
        assert_eq!(words.join(" "), known);
        for step in FailedStep::ALL {
            assert_eq!(step.as_str().parse(), Ok(*step));
        }
        let failure = FailedStep::Health.failure("no agent answers");
        assert_eq!(failure.to_string(), "health: no agent answers");
    }

    #[test]
    fn few_words_blame_the_version_and_unknown_ones_do_not() {
        let blaming = FailedStep::ALL.iter().filter(|step| step.blames_the_version());
        assert_eq!(blaming.map(|step| step.as_str()).collect::<Vec<_>>(), ["validate", "restart", "health"]);
        for word in ["", "Health", "health ", "smoke"] {
            assert_eq!(word.parse::<FailedStep>(), Err(UnknownStep), "{word:?}");
        }
    }
}
