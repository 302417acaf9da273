//! The commands: what is due, given what is on disk and what the control plane says.

use std::io;
use std::time::Duration;

use refit_types::{UpdaterStatus, Version};

use crate::config::{Config, ConfigError};
use crate::disk::{Disk, create_dirs_durably, write_durably};
use crate::failure::{FailedStep, StepFailed};
use crate::host::{Answer, HostError};
use crate::status_file::{CommandResult, last_status, next_status};
use crate::switch::{Environment, SwitchPlan, Switched, active_version, database_for, is_complete, next_try};
use crate::{Circumstances, Layout, links, units};

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do, and why.
    Nothing(String),
    /// Another version is active now.
    Switched {
        /// What was active.
        from: Option<Version>,
        /// What is.
        to: Version,
    },
    /// It will not be done on this host, and why: no fault, and nothing to try again.
    Held(String),
    /// It is due, and to be begun after that time, so that not all hosts begin at once.
    Later(Duration),
    /// It could not be tried, and nothing has changed.
    Failed {
        /// What was to be tried.
        version: Version,
        /// What went wrong.
        failure: StepFailed,
    },
    /// It was tried and undone.
    Undone {
        /// What was tried.
        version: Version,
        /// What went wrong.
        failure: StepFailed,
    },
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A step.
    #[error("{0}")]
    Step(#[from] StepFailed),
    /// The control plane.
    #[error("the control plane cannot be asked: {0}")]
    ControlPlane(HostError),
    /// Updates are on, and nobody says from where.
    #[error("updates are enabled and no proxy is set; run `enable --proxy HOST:PORT`")]
    NoProxy,
    /// The disk.
    #[error("{what} cannot be used: {source}")]
    Disk {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// How urgent an update is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// When the control plane says so, spread over its jitter.
    Due,
    /// When the control plane still says so after that.
    Spread,
    /// An operator stands there and waits.
    Now,
}

/// One agent's updater. Whoever has it holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct Updater<'a> {
    /// What it works with.
    pub parts: Environment<'a>,
    /// A number below another, drawn at random.
    pub random: fn(u32) -> u32,
    /// The system's packages, where there are any.
    pub packages: &'a dyn Packages,
}

/// The system's package manager, as far as it is in the way.
pub trait Packages: std::fmt::Debug + Send + Sync {
    /// Whether the package is installed.
    fn is_installed(&self, package: &str) -> Result<bool, HostError>;

    /// Removes and purges it, but leaves the agent's configuration and data alone.
    fn purge(&self, package: &str) -> Result<(), HostError>;
}

impl Updater<'_> {
    /// Brings the agent to the version that the cluster wants, if it is due.
    pub fn update(&self, urgency: Urgency) -> Result<Outcome, UpdateError> {
        let config = self.config()?;
        if !config.enabled {
            return self.tell(&config, None, Outcome::Nothing("updates are disabled on this host".into()));
        }
        let Some(proxy) = config.proxy.clone() else { return Err(UpdateError::NoProxy) };
        let answer = self.parts.control.find().map_err(UpdateError::ControlPlane)?;
        let active = self.active()?;
        let target = config.pinned_version.clone().unwrap_or_else(|| answer.version.clone());
        let is_pinned = config.pinned_version.is_some();
        let nothing = |why: String| self.tell(&config, Some(&answer), Outcome::Nothing(why));
        if active.as_ref() == Some(&target) {
            let config = self.tidy(config.clone(), &target)?;
            let pinned = if is_pinned { " (pinned)" } else { "" };
            if let Err(error) = self.parts.place_units(&target, false) {
                tracing::warn!("The units of {target} could not be put in place: {error}");
            }
            if let Err(error) = self.parts.is_proved(&target) {
                tracing::warn!("That {target} works could not be written down: {error}");
            }
            let why = format!("{target} is active{pinned}");
            let told = self.tell(&config, Some(&answer), Outcome::Nothing(why))?;
            self.prune(&target);
            return Ok(told);
        }
        if urgency != Urgency::Now && !is_pinned {
            if !answer.auto_update {
                return nothing(format!("{target} is wanted, and this host is not to go there yet"));
            }
            if let Some(wait) = self.holds_back(&target, answer.attempt) {
                return nothing(wait);
            }
            let jitter = match urgency {
                Urgency::Due => (self.random)(answer.jitter_seconds.saturating_add(1)),
                Urgency::Spread | Urgency::Now => 0,
            };
            if jitter > 0 {
                let wait = Duration::from_secs(jitter.into());
                return self.tell(&config, Some(&answer), Outcome::Later(wait));
            }
        }
        let is_free = urgency == Urgency::Now || is_pinned;
        self.go(&config, &answer, active.as_ref(), &target, &proxy, is_free)
    }

    /// Installs what the cluster wants, now, and goes on keeping it so.
    pub fn enable(
        &self,
        proxy: String,
        base_url: Option<String>,
        ca_pin: Option<String>,
    ) -> Result<Outcome, UpdateError> {
        let Environment { disk, layout, profile, service, .. } = self.parts;
        create_dirs_durably(disk, &layout.versions(), 0o755)
            .map_err(|source| UpdateError::Disk { what: "the directory of versions", source })?;
        let answer = self.parts.control.find().map_err(UpdateError::ControlPlane)?;
        let mut config = self.config()?;
        let active = self.active()?;
        let target = config.pinned_version.clone().unwrap_or_else(|| answer.version.clone());
        let outcome = if active.as_ref() == Some(&target) {
            Outcome::Nothing(format!("{target} is active"))
        } else {
            self.go(&config, &answer, active.as_ref(), &target, &proxy, true)?
        };
        if matches!(outcome, Outcome::Undone { .. } | Outcome::Failed { .. }) {
            return Ok(outcome);
        }
        self.parts.take_over(self.packages)?;
        links::place(disk, layout, profile).map_err(FailedStep::Link.failed())?;
        if let Some(active) = self.active()? {
            self.parts.place_units(&active, false).map_err(FailedStep::Link.failed())?;
        }
        units::place_wants(disk, layout, profile).map_err(FailedStep::Link.failed())?;
        config = self.config()?;
        (config.enabled, config.proxy) = (true, Some(proxy));
        config.base_url = base_url.or(config.base_url);
        config.ca_pin = ca_pin.or(config.ca_pin);
        config = self.tidy(config, &target)?;
        config.store(disk, &layout.config())?;
        service.refresh().map_err(FailedStep::Service.failed())?;
        service.set_updates(true).map_err(FailedStep::Service.failed())?;
        tracing::info!("Updates are enabled");
        self.tell(&config, Some(&answer), outcome)
    }

    /// Changes nothing any more, until it is enabled again.
    pub fn disable(&self) -> Result<Outcome, UpdateError> {
        let mut config = self.config()?;
        config.enabled = false;
        config.store(self.parts.disk, &self.parts.layout.config())?;
        tracing::info!("Updates are disabled");
        self.tell(&config, None, Outcome::Nothing("updates are disabled on this host".into()))
    }

    /// Stays on a version, or follows the cluster again.
    pub fn pin(&self, version: Option<Version>) -> Result<(), UpdateError> {
        let mut config = self.config()?;
        config.pinned_version = version;
        config.store(self.parts.disk, &self.parts.layout.config())?;
        self.tell(&config, None, Outcome::Nothing(String::new())).map(drop)
    }

    fn go(
        &self,
        config: &Config,
        answer: &Answer,
        active: Option<&Version>,
        target: &Version,
        proxy: &str,
        is_free: bool,
    ) -> Result<Outcome, UpdateError> {
        let failed = |failure| {
            let version = target.clone();
            self.fail(config, answer, Outcome::Failed { version, failure })
        };
        if let Err(failure) = self.fetch(answer, target) {
            return failed(failure);
        }
        let Environment { disk, layout, .. } = self.parts;
        let circumstances = Circumstances {
            proxy: proxy.to_owned(),
            now: self.parts.clock.now(),
            trusted: self.parts.agent.trusted_issuers(),
        };
        let database = match database_for(disk, layout, active, target, &circumstances) {
            Ok(database) => database,
            Err(reason) => {
                let held = format!("{target} is older than what is active: {reason}");
                tracing::warn!("Held: {held}");
                return self.tell(config, Some(answer), Outcome::Held(held));
            }
        };
        let still = || {
            let asked = || {
                let answer = self.parts.control.find().map_err(FailedStep::Find.failed())?;
                Ok(answer.auto_update && answer.version == *target)
            };
            if is_free { Ok(true) } else { asked() }
        };
        match self.parts.switch(SwitchPlan { from: active, to: target, database, proxy }, &still) {
            Ok(Switched::Done) => {
                let config = self.tidy(config.clone(), target)?;
                let outcome = Outcome::Switched { from: active.cloned(), to: target.clone() };
                let told = self.tell(&config, Some(answer), outcome)?;
                self.prune(target);
                Ok(told)
            }
            Ok(Switched::CalledOff) => {
                let why = format!("{target} is no longer due on this host");
                self.tell(config, Some(answer), Outcome::Nothing(why))
            }
            Ok(Switched::Undone(failure)) => {
                let version = target.clone();
                self.fail(config, answer, Outcome::Undone { version, failure })
            }
            Err(failure) => failed(failure),
        }
    }

    fn fetch(&self, answer: &Answer, target: &Version) -> Result<(), StepFailed> {
        let Environment { disk, layout, control, .. } = self.parts;
        if is_complete(disk, layout, target).map_err(FailedStep::Download.failed())? {
            tracing::info!("{target} is on the disk already");
            return Ok(());
        }
        control
            .fetch(&Answer { version: target.clone(), ..answer.clone() })
            .map_err(FailedStep::Download.failed())
    }

    /// Why the version is not tried again yet, if it has failed before. What failed for another reason is tried again
    /// each time.
    fn holds_back(&self, target: &Version, attempt: u64) -> Option<String> {
        let status = self.status();
        let failure = status.last_failure.as_ref().filter(|failure| failure.version == *target)?;
        FailedStep::from_word(&failure.step).filter(|step| step.blames_the_version())?;
        let next = next_try(status.failures, failure.at);
        let is_new = attempt != 0 && attempt != failure.attempt;
        (!is_new && self.parts.clock.now() < next).then(|| {
            format!(
                "{target} failed at {} ({}); it is tried again at {next}, or in a new attempt",
                failure.step, failure.reason
            )
        })
    }

    /// Puts right what a run that was cut off after its switch has left: the copy of the pointer.
    fn tidy(&self, config: Config, active: &Version) -> Result<Config, UpdateError> {
        if config.active_version.as_ref() == Some(active) {
            return Ok(config);
        }
        let config = Config { active_version: Some(active.clone()), ..config };
        config.store(self.parts.disk, &self.parts.layout.config())?;
        Ok(config)
    }

    /// Removes all versions but the active one and the last that worked. It is no fault of the update if that fails.
    fn prune(&self, active: &Version) {
        let last = self.status().agent_version_previous;
        if let Err(error) = prune(self.parts.disk, self.parts.layout, active, last.as_ref()) {
            tracing::warn!("Old versions could not be removed: {error}");
        }
    }

    pub(crate) fn config(&self) -> Result<Config, UpdateError> {
        Ok(Config::load(self.parts.disk, &self.parts.layout.config())?)
    }

    pub(crate) fn active(&self) -> Result<Option<Version>, UpdateError> {
        active_version(self.parts.disk, self.parts.layout)
            .map_err(|source| UpdateError::Disk { what: "the pointer to the active version", source })
    }

    fn status(&self) -> UpdaterStatus {
        last_status(self.parts.disk, self.parts.layout)
    }

    /// Writes down a failure. That the disk has no room for it is not worth more than the failure itself.
    fn fail(&self, config: &Config, answer: &Answer, outcome: Outcome) -> Result<Outcome, UpdateError> {
        self.tell(config, Some(answer), outcome.clone()).or_else(|error| {
            tracing::warn!("The failure could not be written down: {error}");
            Ok(outcome)
        })
    }

    /// Writes down what came of a command, for `status` and for the agent's heartbeat.
    fn tell(
        &self,
        config: &Config,
        answer: Option<&Answer>,
        outcome: Outcome,
    ) -> Result<Outcome, UpdateError> {
        let before = self.status();
        let now = CommandResult { config, answer, active: self.active()?, at: self.parts.clock.now() };
        let status = next_status(before.clone(), &now, &outcome);
        if status != before {
            let bytes = serde_json::to_vec_pretty(&status)
                .map_err(|error| UpdateError::Disk { what: "the status", source: io::Error::other(error) })?;
            write_durably(self.parts.disk, &self.parts.layout.status(), &bytes, 0o644)
                .map_err(|source| UpdateError::Disk { what: "the status", source })?;
        }
        Ok(outcome)
    }
}

/// A version stops being complete before the rest of it goes.
fn prune(disk: &dyn Disk, layout: &Layout, active: &Version, last: Option<&Version>) -> io::Result<()> {
    for name in disk.list(&layout.versions())? {
        let Some(version) = name.to_str().and_then(|name| name.parse::<Version>().ok()) else { continue };
        if version == *active || Some(&version) == last {
            continue;
        }
        let folder = layout.versions().join(&name);
        crate::backup::remove_if_there(disk, &folder.join("sha256"))?;
        disk.sync_dir(&folder)?;
        disk.remove_dir_all(&folder)?;
        disk.sync_dir(&layout.versions())?;
    }
    Ok(())
}
