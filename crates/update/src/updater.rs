//! The commands: what is due, given what is on disk and what the control plane says.

use std::io;

use refit_types::{UpdateFailure, UpdaterStatus, Version};

use crate::config::{Config, ConfigError};
use crate::disk::{Disk, create_dirs_durably, write_durably};
use crate::host::{Answer, HostError};
use crate::switch::{
    Parts, StepFailed, Switched, active_version, database_for, failed, is_complete, next_try,
};
use crate::{Circumstances, Layout, links};

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
    /// An archive.
    #[error("{version} cannot be installed: {source}")]
    Fetch {
        /// Which version.
        version: Version,
        /// Why.
        source: HostError,
    },
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
    /// An operator stands there and waits.
    Now,
}

/// One agent's updater. Whoever has it holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct Updater<'a> {
    /// What it works with.
    pub parts: Parts<'a>,
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
            return self
                .tell(&config, None, |_| Outcome::Nothing("updates are disabled on this host".into()));
        }
        let Some(proxy) = config.proxy.clone() else { return Err(UpdateError::NoProxy) };
        let answer = self.parts.control.find().map_err(UpdateError::ControlPlane)?;
        let active = self.active()?;
        let target = config.pinned_version.clone().unwrap_or_else(|| answer.version.clone());
        let is_pinned = config.pinned_version.is_some();
        let nothing = |why: String| self.tell(&config, Some(&answer), |_| Outcome::Nothing(why));
        if active.as_ref() == Some(&target) {
            let pinned = if is_pinned { " (pinned)" } else { "" };
            return nothing(format!("{target} is active{pinned}"));
        }
        if urgency == Urgency::Due && !is_pinned {
            if !answer.auto_update {
                return nothing(format!("{target} is wanted, and this host is not to go there yet"));
            }
            if let Some(wait) = self.holds_back(&target, answer.attempt) {
                return nothing(wait);
            }
            let jitter = (self.random)(answer.jitter_seconds.saturating_add(1));
            self.parts.clock.sleep(std::time::Duration::from_secs(jitter.into()));
            if !self.is_still_due(&target)? {
                return nothing(format!("{target} is no longer due on this host"));
            }
        }
        self.go(&config, &answer, active.as_ref(), &target, &proxy, urgency)
    }

    /// Installs what the cluster wants, now, and goes on keeping it so.
    pub fn enable(
        &self,
        proxy: String,
        base_url: Option<String>,
        ca_pin: Option<String>,
    ) -> Result<Outcome, UpdateError> {
        let layout = self.parts.layout;
        create_dirs_durably(self.parts.disk, &layout.versions(), 0o755)
            .map_err(|source| UpdateError::Disk { what: "the directory of versions", source })?;
        let answer = self.parts.control.find().map_err(UpdateError::ControlPlane)?;
        let mut config = self.config()?;
        let active = self.active()?;
        let target = config.pinned_version.clone().unwrap_or_else(|| answer.version.clone());
        let outcome = if active.as_ref() == Some(&target) {
            Outcome::Nothing(format!("{target} is active"))
        } else {
            self.go(&config, &answer, active.as_ref(), &target, &proxy, Urgency::Now)?
        };
        if matches!(outcome, Outcome::Undone { .. } | Outcome::Held(_)) {
            return Ok(outcome);
        }
        self.purge_package()?;
        links::place(self.parts.disk, layout, self.parts.profile).map_err(failed("link"))?;
        config = self.config()?;
        (config.enabled, config.proxy) = (true, Some(proxy));
        config.base_url = base_url.or(config.base_url);
        config.ca_pin = ca_pin.or(config.ca_pin);
        config.store(self.parts.disk, &layout.config())?;
        self.tell(&config, Some(&answer), |_| outcome)
    }

    /// Changes nothing any more, until it is enabled again.
    pub fn disable(&self) -> Result<Outcome, UpdateError> {
        let mut config = self.config()?;
        config.enabled = false;
        config.store(self.parts.disk, &self.parts.layout.config())?;
        self.tell(&config, None, |_| Outcome::Nothing("updates are disabled on this host".into()))
    }

    /// Stays on a version, or follows the cluster again.
    pub fn pin(&self, version: Option<Version>) -> Result<(), UpdateError> {
        let mut config = self.config()?;
        config.pinned_version = version;
        config.store(self.parts.disk, &self.parts.layout.config())?;
        self.tell(&config, None, |_| Outcome::Nothing(String::new())).map(drop)
    }

    fn go(
        &self,
        config: &Config,
        answer: &Answer,
        active: Option<&Version>,
        target: &Version,
        proxy: &str,
        urgency: Urgency,
    ) -> Result<Outcome, UpdateError> {
        let Parts { disk, layout, .. } = self.parts;
        if !is_complete(disk, layout, target)
            .map_err(|source| UpdateError::Disk { what: "a version", source })?
        {
            let wanted = Answer { version: target.clone(), ..answer.clone() };
            let fetched = self.parts.control.fetch(&wanted);
            fetched.map_err(|source| UpdateError::Fetch { version: target.clone(), source })?;
        }
        let circumstances = Circumstances {
            proxy: proxy.to_owned(),
            now: self.parts.clock.now(),
            trusted: self.parts.agent.trusted_issuers(),
        };
        let database = match database_for(disk, layout, active, target, &circumstances) {
            Ok(database) => database,
            Err(reason) => {
                let held = format!("{target} is older than what is active: {reason}");
                return self.tell(config, Some(answer), |status| {
                    status.held = Some(held.clone());
                    Outcome::Held(held)
                });
            }
        };
        let is_due = urgency == Urgency::Now || config.pinned_version.is_some();
        if !is_due && !self.is_still_due(target)? {
            let why = format!("{target} is no longer due on this host");
            return self.tell(config, Some(answer), |_| Outcome::Nothing(why));
        }
        match self.parts.switch(active, target, database, answer.attempt, proxy)? {
            Switched::Done => {
                let config = Config { active_version: Some(target.clone()), ..config.clone() };
                config.store(disk, &layout.config())?;
                self.prune(target, active)?;
                self.tell(&config, Some(answer), |status| {
                    status.agent_version_previous = active.cloned();
                    status.agent_edition_previous = status.agent_edition_installed;
                    status.agent_edition_installed = Some(answer.edition);
                    (status.last_failure, status.failures) = (None, 0);
                    Outcome::Switched { from: active.cloned(), to: target.clone() }
                })
            }
            Switched::Undone(failure) => self.tell(config, Some(answer), |status| {
                let same = status.last_failure.as_ref().is_some_and(|last| last.version == *target);
                status.failures = if same { status.failures.saturating_add(1) } else { 1 };
                status.last_failure = Some(UpdateFailure {
                    attempt: answer.attempt,
                    version: target.clone(),
                    step: failure.step.into(),
                    reason: failure.reason.clone(),
                    at: self.parts.clock.now(),
                });
                Outcome::Undone { version: target.clone(), failure }
            }),
        }
    }

    fn is_still_due(&self, target: &Version) -> Result<bool, UpdateError> {
        let answer = self.parts.control.find().map_err(UpdateError::ControlPlane)?;
        Ok(answer.auto_update && answer.version == *target)
    }

    /// Why the version is not tried again yet, if it has failed before.
    fn holds_back(&self, target: &Version, attempt: u64) -> Option<String> {
        let status = self.status();
        let failure = status.last_failure.as_ref().filter(|failure| failure.version == *target)?;
        let next = next_try(status.failures, failure.at);
        let is_new = attempt != 0 && attempt != failure.attempt;
        (!is_new && self.parts.clock.now() < next).then(|| {
            format!(
                "{target} failed at {} ({}); it is tried again at {next}, or in a new attempt",
                failure.step, failure.reason
            )
        })
    }

    fn purge_package(&self) -> Result<(), UpdateError> {
        let step = |error: HostError| StepFailed { step: "package", reason: error.to_string() };
        match &self.parts.profile.package {
            Some(package) if self.packages.is_installed(package).map_err(step)? => {
                Ok(self.packages.purge(package).map_err(step)?)
            }
            _ => Ok(()),
        }
    }

    /// Removes all versions but the active one and the last that worked.
    fn prune(&self, active: &Version, last: Option<&Version>) -> Result<(), UpdateError> {
        let Parts { disk, layout, .. } = self.parts;
        prune(disk, layout, active, last).map_err(|error| failed("prune")(error).into())
    }

    fn config(&self) -> Result<Config, UpdateError> {
        Ok(Config::load(self.parts.disk, &self.parts.layout.config())?)
    }

    fn active(&self) -> Result<Option<Version>, UpdateError> {
        active_version(self.parts.disk, self.parts.layout)
            .map_err(|source| UpdateError::Disk { what: "the pointer to the active version", source })
    }

    fn status(&self) -> UpdaterStatus {
        last_status(self.parts.disk, self.parts.layout)
    }

    /// Writes down what came of a command, for `status` and for the agent's heartbeat.
    fn tell(
        &self,
        config: &Config,
        answer: Option<&Answer>,
        change: impl FnOnce(&mut UpdaterStatus) -> Outcome,
    ) -> Result<Outcome, UpdateError> {
        let before = self.status();
        let mut status = before.clone();
        status.held = None;
        let outcome = change(&mut status);
        status.agent_version_installed = self.active()?;
        status.agent_updates_enabled = config.enabled;
        status.pinned_version = config.pinned_version.clone();
        if let Some(answer) = answer {
            status.agent_version_desired = Some(answer.version.clone());
            status.agent_edition_desired = Some(answer.edition);
            status.agent_update_time_jitter = answer.jitter_seconds;
        }
        if matches!(outcome, Outcome::Switched { .. } | Outcome::Undone { .. }) {
            status.agent_update_time_last = Some(self.parts.clock.now());
        }
        if status != before {
            let bytes = serde_json::to_vec_pretty(&status)
                .map_err(|error| UpdateError::Disk { what: "the status", source: io::Error::other(error) })?;
            write_durably(self.parts.disk, &self.parts.layout.status(), &bytes, 0o644)
                .map_err(|source| UpdateError::Disk { what: "the status", source })?;
        }
        Ok(outcome)
    }
}

/// What was last told of the updater of a host; nothing if nothing can be read.
pub fn last_status(disk: &dyn Disk, layout: &Layout) -> UpdaterStatus {
    let read = disk.read(&layout.status()).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
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
