//! The steps of an update that can fail, by the words that other releases know. Used typed everywhere in this crate;
//! `status_file` turns them into stored words and back.

use std::fmt;
use std::str::FromStr;

use refit_types::FailedAgent;

/// The steps and their words in one list, so that none is left out when a word is read.
macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $step:ident => $word:literal,)+) => {
        /// A step that failed. Its word is in `status.json`, in heartbeats and in logs, where other releases read it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FailedStep {
            $($(#[doc = $doc])+ $step,)+
        }

        impl FailedStep {
            const ALL: &'static [Self] = &[$(Self::$step),+];

            /// Its word outside of this crate.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$step => $word,)+
                }
            }
        }
    };
}

steps! {
    /// Asking the control plane whether the version is still due.
    Find => "find",
    /// Downloading and unpacking the version.
    Download => "download",
    /// Running every binary of it.
    Validate => "validate",
    /// Running a binary of it, which was cut short from outside: by the OOM killer, or by a shutdown.
    Probe => "probe",
    /// Backing up the database of the version that is left.
    Backup => "backup",
    /// Putting links and units in place.
    Link => "link",
    /// A request to the service manager other than stopping and starting the agent.
    Service => "service",
    /// Storing the journal.
    Journal => "journal",
    /// Stopping the agent.
    Stop => "stop",
    /// Restoring the database that the version had.
    Restore => "restore",
    /// Moving the pointer.
    Switch => "switch",
    /// Reloading or starting the agent.
    Restart => "restart",
    /// Waiting until the agent is healthy.
    Health => "health",
    /// Removing the journal after the switch.
    Settle => "settle",
    /// Rolling back.
    Undo => "undo",
    /// Reading the journal of an interrupted switch.
    Recover => "recover",
    /// Replacing the system's package.
    Package => "package",
    /// Uninstalling.
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
    /// Whether the version is to blame, and not the host or the network. Only then is the next try delayed.
    pub fn blames_the_version(self) -> bool {
        match self {
            Self::Validate | Self::Restart | Self::Health => true,
            Self::Find
            | Self::Download
            | Self::Probe
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
        StepFailed { step: self, reason: reason.to_string(), agent: None }
    }

    /// Turns an error into a failure of this step.
    pub(crate) fn failed<E: fmt::Display>(self) -> impl Fn(E) -> StepFailed {
        move |error| self.failure(error)
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A step that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {reason}")]
pub struct StepFailed {
    /// Which step.
    pub step: FailedStep,
    /// Why.
    pub reason: String,
    /// What is known of the agent that was started, if one was.
    pub agent: Option<Box<FailedAgent>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control planes and updaters of other releases know these words: none may change.
    #[test]
    fn the_words_are_what_other_versions_know() {
        let words: Vec<&str> = FailedStep::ALL.iter().map(|step| step.as_str()).collect();
        let known = "find download validate probe backup link service journal stop restore switch restart health settle undo \
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
