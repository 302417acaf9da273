//! The commands of the updater: reads configuration, status and pointer once, asks the control plane where the command
//! needs it, has `plan` decide, and carries the plan out. Called by `refit-update` with the lock held.

use std::time::Duration;

use refit_types::Version;

use crate::config::Config;
use crate::disk::{create_dirs_durably, remove_dir_durably};
use crate::disk_state::DiskState;
use crate::enable::{self, NotEnabled, Standing};
use crate::environment::Environment;
use crate::failure::{FailedStep, StepFailed};
use crate::host::{Answer, Connector, ControlPlane, Endpoint, FetchError, HostError, Moment, Packages};
use crate::outcome::{Outcome, UpdateError};
use crate::plan::{
    Facts, NotAsked, Plan, RETRY_SHARES, Urgency, decide, endpoint_of, endpoint_to_ask, retry_delay, tries_of,
};
use crate::switch::{Database, SwitchPlan, Switched, database_for};
use crate::told_attempt::told;
use crate::versions::{is_complete, remove_others};
use crate::{RestoreConditions, Unproved, links, units};

const STOPPED: &str = "a command of an operator ended the download; the next update begins anew";
const DISABLED: &str = "updates are disabled on this host; `refit-update enable` enables them";

/// The updater of one agent. The process that uses it holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct Updater<'a> {
    /// The host.
    pub environment: Environment<'a>,
    /// Draws a number below another at random.
    pub random: fn(u32) -> u32,
    /// The system's packages.
    pub packages: &'a dyn Packages,
    /// The attempt that the agent has woken the updater for, if no run has ended since.
    pub woken_for: Option<u64>,
}

/// The control plane that a command asked, and its answer.
#[derive(Clone, Copy)]
struct Asked<'a> {
    control_plane: &'a dyn ControlPlane,
    answer: &'a Answer,
    proxy: &'a str,
}

impl Updater<'_> {
    /// Brings the agent to the version that the cluster wants, if that is due.
    pub fn update(&self, urgency: Urgency, connector: &dyn Connector) -> Result<Outcome, UpdateError> {
        let mut state = self.load_state()?;
        if let Some(undone) = self.prove_active(&mut state, connector)? {
            return Ok(undone);
        }
        let endpoint = match endpoint_to_ask(&state.config) {
            Ok(endpoint) => endpoint,
            Err(NotAsked::Disabled) => {
                return self.save_status(&mut state, None, Outcome::Nothing(DISABLED.into()));
            }
            Err(NotAsked::NoProxy) => return Err(UpdateError::NoProxy),
        };
        let control_plane = connector.connect(&endpoint).map_err(UpdateError::Connect)?;
        let answer = &match control_plane.find() {
            Ok(answer) => answer,
            Err(error) => return self.not_answered(&mut state, error),
        };
        log_answer(&endpoint.proxy, answer, urgency);
        let asked = Asked { control_plane: &*control_plane, answer, proxy: &endpoint.proxy };
        match self.plan(&state, answer, urgency) {
            Plan::KeepActive { version, is_pinned } => {
                self.keep_active(&mut state, answer, &version, is_pinned)
            }
            Plan::Switch { version, confirm } => match self.switch(&mut state, asked, &version, confirm) {
                Err(UpdateError::Stopped) => Ok(Outcome::Nothing(STOPPED.into())),
                other => other,
            },
            Plan::Postpone(postponed) => {
                let outcome = self.still_held(&state, asked).unwrap_or_else(|| postponed.into());
                self.save_status(&mut state, Some(answer), outcome)
            }
        }
    }

    /// Enables updates, and installs the version that the cluster wants. A host that the cluster knows changes its version
    /// only when it is told to, or if `is_urgent`. Options that are not given keep what is configured.
    pub fn enable(
        &self,
        proxy: Option<String>,
        base_urls: Option<Vec<String>>,
        ca_pin: Option<String>,
        is_urgent: bool,
        connector: &dyn Connector,
    ) -> Result<Outcome, UpdateError> {
        let Environment { disk, layout, profile, service, .. } = self.environment;
        let mut state = self.load_state()?;
        if let Some(undone) = self.prove_active(&mut state, connector)? {
            return Ok(undone);
        }
        let proxy = match proxy {
            Some(proxy) => proxy,
            None => self.default_proxy(&state, connector)?,
        };
        let base_urls = base_urls.unwrap_or_else(|| state.config.base_urls());
        let ca_pin = ca_pin.or_else(|| state.config.ca_pin.clone());
        let endpoint = Endpoint { proxy, base_urls, ca_pin };
        let control_plane = connector.connect(&endpoint).map_err(UpdateError::Connect)?;
        // An uninstallation that was cut may have left versions under another name.
        remove_dir_durably(disk, &layout.removed_versions())
            .and_then(|()| create_dirs_durably(disk, &layout.versions(), 0o755))
            .map_err(|source| UpdateError::Disk { what: "the directory of versions", source })?;
        let standing = self.environment.standing(state.active.as_ref())?;
        let answer = &match is_urgent {
            true => control_plane.find().map_err(UpdateError::ControlPlane)?,
            false => enable::ask(&*control_plane, &standing)?,
        };
        let urgency = match &standing {
            Standing::Joined { .. } if !is_urgent => Urgency::Spread,
            _ => Urgency::Now,
        };
        log_answer(&endpoint.proxy, answer, urgency);
        let moment = self.environment.clock.moment();
        let facts = self.facts(&state, answer, urgency, &moment);
        let plan = match is_urgent {
            true => decide(facts),
            false => enable::decide_enable(facts, &standing)?,
        };
        let outcome = match plan {
            Plan::Switch { version, confirm } => {
                let asked = Asked { control_plane: &*control_plane, answer, proxy: &endpoint.proxy };
                self.switch(&mut state, asked, &version, confirm)?
            }
            Plan::KeepActive { version, .. } => Outcome::Nothing(format!("{version} is active")),
            Plan::Postpone(postponed) => postponed.into(),
        };
        if let (Outcome::CalledOff { version }, None) = (&outcome, &state.active) {
            return Err(NotEnabled::CalledOff { version: version.clone() }.into());
        }
        if matches!(outcome, Outcome::Undone { .. } | Outcome::Failed { .. } | Outcome::Obstructed { .. }) {
            return Ok(outcome);
        }
        self.environment.take_over(self.packages)?;
        links::place(disk, layout, profile).map_err(FailedStep::Link.failed())?;
        let active = self.load_active()?;
        if let Some(active) = &active {
            self.environment.place_units(active, false).map_err(FailedStep::Link.failed())?;
        }
        units::place_wants(disk, layout, profile).map_err(FailedStep::Link.failed())?;
        let Endpoint { proxy, base_urls, ca_pin } = endpoint;
        let mut base_urls = base_urls.into_iter();
        let config = Config {
            enabled: true,
            proxy: Some(proxy),
            base_url: base_urls.next(),
            mirrors: base_urls.collect(),
            ca_pin,
            active_version: active,
            ..state.config.clone()
        };
        self.save_config(&mut state, config)?;
        service.refresh().map_err(FailedStep::Service.failed())?;
        service.set_updates(true).map_err(FailedStep::Service.failed())?;
        tracing::info!("Updates are enabled");
        let outcome = self.save_status(&mut state, Some(answer), outcome)?;
        // A switch has done so itself, and what is held may be wanted on the disk later.
        if let (Outcome::Nothing(_), Some(active)) = (&outcome, state.active.clone()) {
            self.remove_old_versions(&state, &active);
        }
        Ok(outcome)
    }

    /// The control plane where nobody names one: the agent's own, which may have moved since it was written into
    /// `updates.yaml`.
    fn default_proxy(&self, state: &DiskState, connector: &dyn Connector) -> Result<String, UpdateError> {
        let of_agent = connector.default_proxy().map_err(UpdateError::Connect)?;
        of_agent.or_else(|| state.config.proxy.clone()).ok_or_else(|| UpdateError::NoProxyNamed {
            config: self.environment.layout.agent_config().display().to_string(),
        })
    }

    /// Disables updates until they are enabled again.
    pub fn disable(&self) -> Result<Outcome, UpdateError> {
        let mut state = self.load_state()?;
        let config = Config { enabled: false, ..state.config.clone() };
        self.save_config(&mut state, config)?;
        tracing::info!("Updates are disabled");
        self.save_status(&mut state, None, Outcome::Nothing(DISABLED.into()))
    }

    /// Pins the host to a version from its next update on; without one, it follows the cluster again.
    pub fn pin(&self, version: Option<Version>) -> Result<(), UpdateError> {
        let mut state = self.load_state()?;
        let config = Config { pinned_version: version, ..state.config.clone() };
        self.save_config(&mut state, config)?;
        self.save_status(&mut state, None, Outcome::Nothing(String::new())).map(drop)
    }

    /// Proves the active version if it was switched to while no agent ran; returns how it ended if it does not work.
    fn prove_active(
        &self,
        state: &mut DiskState,
        connector: &dyn Connector,
    ) -> Result<Option<Outcome>, UpdateError> {
        let config = state.config.clone();
        let is_reachable = || {
            // Also where updates are disabled: an agent that cannot connect has proved nothing.
            let endpoint = endpoint_of(&config);
            let client = endpoint.and_then(|endpoint| connector.connect(&endpoint).ok());
            client.is_some_and(|client| client.find().is_ok())
        };
        let Some(disproved) = self.environment.prove_active(&is_reachable)? else { return Ok(None) };
        *state = self.load_state()?;
        if let Err(error) = self.save_active_version(state, &disproved.from) {
            tracing::warn!("The active version could not be saved: {error}");
        }
        Ok(Some(Outcome::Undone { version: disproved.version, failure: disproved.failure }))
    }

    fn plan(&self, state: &DiskState, answer: &Answer, urgency: Urgency) -> Plan {
        let told = told(&state.status, Some(answer), self.woken_for);
        let moment = self.environment.clock.moment();
        decide(Facts { told: told.as_ref(), ..self.facts(state, answer, urgency, &moment) })
    }

    fn facts<'f>(
        &self,
        state: &'f DiskState,
        answer: &'f Answer,
        urgency: Urgency,
        now: &'f Moment,
    ) -> Facts<'f> {
        Facts {
            config: &state.config,
            answer,
            active: state.active.as_ref(),
            status: &state.status,
            urgency,
            now,
            jitter: Duration::from_secs((self.random)(answer.jitter_seconds.saturating_add(1)).into()),
            told: None,
        }
    }

    /// Repairs what a run that was interrupted after its switch has left.
    fn keep_active(
        &self,
        state: &mut DiskState,
        answer: &Answer,
        version: &Version,
        is_pinned: bool,
    ) -> Result<Outcome, UpdateError> {
        self.save_active_version(state, version)?;
        if let Err(error) = self.environment.place_units(version, false) {
            tracing::warn!("The units of {version} could not be put in place: {error}");
        }
        if let Err(error) = self.environment.record_proof(version) {
            tracing::warn!("The proof that {version} works could not be recorded: {error}");
        }
        let pinned = if is_pinned { " (pinned)" } else { "" };
        let nothing = Outcome::Nothing(format!("{version} is active{pinned}"));
        let outcome = self.save_status(state, Some(answer), nothing)?;
        self.remove_old_versions(state, version);
        Ok(outcome)
    }

    fn switch(
        &self,
        state: &mut DiskState,
        asked: Asked<'_>,
        version: &Version,
        confirm: bool,
    ) -> Result<Outcome, UpdateError> {
        let Asked { control_plane, answer, proxy } = asked;
        match self.download(asked, version) {
            Ok(()) => {}
            Err(FetchError::Stopped) => return Err(UpdateError::Stopped),
            Err(FetchError::Failed(error)) => {
                return self.not_switched(state, answer, version, FailedStep::Download.failure(error));
            }
        }
        let from = state.active.clone();
        let database = match self.database_for(state, proxy, version) {
            Ok(database) => database,
            Err(held) => {
                tracing::warn!("Held: {held}");
                return self.save_status(state, Some(answer), Outcome::Held(held));
            }
        };
        let attempt = answer.attempt;
        let plan = SwitchPlan { from: from.as_ref(), to: version, database, proxy, confirm, attempt };
        match self.environment.switch(plan, control_plane) {
            Ok(Switched::Done) => {
                self.save_active_version(state, version)?;
                let switched = Outcome::Switched { from, to: version.clone() };
                let outcome = self.save_status(state, Some(answer), switched)?;
                self.remove_old_versions(state, version);
                Ok(outcome)
            }
            Ok(Switched::CalledOff) => {
                self.save_status(state, Some(answer), Outcome::CalledOff { version: version.clone() })
            }
            Ok(Switched::Undone(failure)) => {
                let undone = Outcome::Undone { version: version.clone(), failure };
                self.save_failure(state, Some(answer), undone)
            }
            Err(failure) => self.not_switched(state, answer, version, failure),
        }
    }

    /// What becomes of the database in a switch to that version, or why this host refuses the version.
    fn database_for(&self, state: &DiskState, proxy: &str, version: &Version) -> Result<Database, String> {
        let Environment { disk, layout, profile, agent, clock, .. } = self.environment;
        let conditions = RestoreConditions {
            proxy: proxy.to_owned(),
            now: clock.now(),
            trusted: agent.trusted_issuers(),
            identity_lifetime: profile.identity_lifetime,
        };
        database_for(disk, layout, state.active.as_ref(), version, &conditions)
            .map_err(|reason| format!("{version} is older than what is active: {reason}"))
    }

    /// A version that this host refused is still refused if it still has the same reason to: the cluster would take it for
    /// released otherwise, and tell it again.
    fn still_held(&self, state: &DiskState, Asked { answer, proxy, .. }: Asked<'_>) -> Option<Outcome> {
        let target = state.status.held_target.as_ref()?;
        let is_same = state.status.held.is_some() && target.version == answer.version && !answer.auto_update;
        is_same.then(|| self.database_for(state, proxy, &target.version).err().map(Outcome::Held))?
    }

    /// The update ended before anything was switched: either the version cannot be used, or something else stands in
    /// its way.
    fn not_switched(
        &self,
        state: &mut DiskState,
        answer: &Answer,
        version: &Version,
        failure: StepFailed,
    ) -> Result<Outcome, UpdateError> {
        let outcome = match failure.step.blames_the_version() {
            true => Outcome::Failed { version: version.clone(), failure },
            false => self.obstructed(state, Some(version.clone()), answer.attempt, failure),
        };
        self.save_failure(state, Some(answer), outcome)
    }

    /// The control plane could not be asked. That is an obstacle to an attempt that this host has been told of, and is
    /// not known to have ended.
    fn not_answered(&self, state: &mut DiskState, error: HostError) -> Result<Outcome, UpdateError> {
        let obstacle = state.status.obstacle.as_ref();
        let version = obstacle.and_then(|obstacle| obstacle.version.clone());
        let told = state.status.told.clone();
        let (attempt, version) = match (self.woken_for, obstacle.map(|obstacle| obstacle.attempt), told) {
            (Some(woken), Some(attempt), _) if woken == attempt => (attempt, version),
            (Some(woken), ..) => (woken, None),
            (None, Some(attempt), _) => (attempt, version),
            (None, None, Some(told)) => (told.attempt, Some(told.version)),
            (None, None, None) => return Err(UpdateError::ControlPlane(error)),
        };
        let obstructed = self.obstructed(state, version, attempt, FailedStep::Find.failure(error));
        self.save_failure(state, None, obstructed)
    }

    fn obstructed(
        &self,
        state: &DiskState,
        version: Option<Version>,
        attempt: u64,
        failure: StepFailed,
    ) -> Outcome {
        let tries = tries_of(&state.status, version.as_ref(), attempt);
        let delay = retry_delay(tries, (self.random)(RETRY_SHARES));
        Outcome::Obstructed { version, attempt, failure, tries, delay }
    }

    fn download(&self, asked: Asked<'_>, version: &Version) -> Result<(), FetchError> {
        let Environment { disk, layout, .. } = self.environment;
        if is_complete(disk, layout, version).map_err(|error| HostError(error.to_string()))? {
            tracing::info!("{version} is on the disk already");
            return Ok(());
        }
        let answer = Answer { version: version.clone(), ..asked.answer.clone() };
        asked.control_plane.fetch(&answer)
    }

    /// Removes all versions but the active one and the last that worked. The update has succeeded even if this fails.
    fn remove_old_versions(&self, state: &DiskState, active: &Version) {
        let Environment { disk, layout, .. } = self.environment;
        let way_back = Unproved::way_back(disk, layout);
        let removed = way_back.and_then(|way_back| {
            let previous = state.status.agent_version_previous.as_ref();
            let kept: Vec<&Version> =
                [Some(active), previous, way_back.as_ref()].into_iter().flatten().collect();
            remove_others(disk, layout, &kept)
        });
        if let Err(error) = removed {
            tracing::warn!("Old versions could not be removed: {error}");
        }
    }
}

/// Tells what was asked and answered. Whether it is due does not matter to an operator's command.
fn log_answer(proxy: &str, answer: &Answer, urgency: Urgency) {
    let due = match (urgency, answer.auto_update) {
        (Urgency::Now, _) => "",
        (_, true) => ", now",
        (_, false) => ", but not yet",
    };
    tracing::info!("Asked {proxy} what this host should run: {}{due}", answer.version);
}
