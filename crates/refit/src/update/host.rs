//! The host that `refit-update` works on: what runs its services, where its files are, and how its control plane is
//! reached. Every command starts from one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refit_identity::{CaPin, public_client_config};
use refit_types::{DataDir, UpdaterStatus, Version};
use refit_update::{
    Connector, ControlPlane, DetectedService, Endpoint, Environment, FailedStep, HostAgent, HostError,
    HttpsControlPlane, HttpsOptions, HttpsSource, Interrupt, Layout, Lock, LockError, LockRequest,
    NoPackages, Packages, Profile, RealDisk, Recovered, Recovery, Service, SystemClock, SystemPackages,
    Systemd, TransferLimits, UpdateError, Updater, active_version, is_installed, last_status,
    trusted_authorities,
};

use super::progress::ProgressLine;
use super::relay;
use crate::exit::Failure;

/// A host, or an image of one, and the agent on it.
pub(super) struct Host {
    pub(super) layout: Layout,
    pub(super) profile: Profile,
    service: Box<dyn Service>,
    agent: HostAgent,
    /// The arguments that select this agent.
    same: Vec<OsString>,
}

/// How long an answer of the control plane may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What a command that waits for the lock does to the updater that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Has it end its download, if it is at one.
    EndingADownload,
    /// Nothing.
    UntilItIsDone,
}
/// By which systemd names one start of a unit to all its processes.
const INVOCATION: &str = "INVOCATION_ID";

/// A version, and the path of its updater.
pub(super) type Installed = (Version, PathBuf);

impl Host {
    pub(super) fn new(root: &Path, file: Option<&Path>, suffix: Option<&str>) -> Result<Self, Failure> {
        let profile = match file {
            Some(path) => Profile::load(path).map_err(Failure::usage)?,
            None => Profile::refit(),
        };
        if let Some(suffix) = suffix.filter(|suffix| !is_good_suffix(suffix)) {
            let shown: String = suffix.chars().take(80).collect();
            return Err(Failure::usage(format!(
                "{shown:?} is not a suffix; expected letters, digits and '-'"
            )));
        }
        if suffix.is_some() && profile.suffix_drop_ins.is_empty() {
            let name = &profile.name;
            return Err(Failure::usage(format!(
                "the profile {name} has no suffix_drop_ins, so there can be no second agent of it on a host"
            )));
        }
        let root = std::path::absolute(root).map_err(Failure::failed)?;
        let layout = Layout::new(&root, &profile, suffix);
        let has_systemd = layout.is_host() && Path::new("/run/systemd/system").exists();
        let service: Box<dyn Service> = match has_systemd {
            true => {
                let triggers = profile.updater_units.iter().filter(|unit| unit.wanted_by.is_some());
                let triggers = triggers.map(|unit| layout.unit_name(&unit.name)).collect();
                let updater = profile.updater_units.iter().find(|unit| unit.name.ends_with(".service"));
                let updater = updater.map(|unit| layout.unit_name(&unit.name));
                Box::new(Systemd::new(layout.unit(), triggers, updater))
            }
            false => Box::new(DetectedService::new(&layout)),
        };
        let agent = HostAgent::new(&layout, &profile);
        let suffix = suffix.map(|suffix| [OsString::from("--install-suffix"), suffix.into()]);
        let file = file.map(std::path::absolute).transpose().map_err(Failure::failed)?;
        let file = file.map(|file| [OsString::from("--profile"), file.into()]);
        let same = [OsString::from("--root"), root.into()].into_iter().chain(suffix.into_iter().flatten());
        let same = same.chain(file.into_iter().flatten()).collect();
        Ok(Self { layout, profile, service, agent, same })
    }

    /// Takes the lock; nothing if another updater holds it.
    pub(super) fn try_lock(&self) -> Result<Option<Lock>, Failure> {
        match Lock::take(&self.layout.lock()) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Held { .. }) => Ok(None),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    /// Takes the lock as soon as it is free.
    pub(super) fn wait_for_lock(&self, patience: Duration, wait: Wait) -> Result<Lock, Failure> {
        match Lock::take(&self.layout.lock()) {
            Err(held @ LockError::Held { .. }) => {
                tracing::info!("Waiting: {held}");
                let _request = match wait {
                    Wait::EndingADownload => {
                        Some(LockRequest::make(&self.layout.lock_wanted()).map_err(Failure::failed)?)
                    }
                    Wait::UntilItIsDone => None,
                };
                Lock::wait(&self.layout.lock(), patience).map_err(relay::settled)
            }
            other => other.map_err(Failure::failed),
        }
    }

    /// Whether a switch is under way, or was interrupted.
    pub(super) fn is_switching(&self) -> bool {
        self.layout.journal().exists()
    }

    /// Whether no updater has ever run here: its lock would be the first file.
    pub(super) fn is_bare(&self) -> Result<bool, Failure> {
        let is_installed = is_installed(&RealDisk, &self.layout, &self.profile).map_err(Failure::failed)?;
        Ok(!is_installed && !self.layout.versions().exists())
    }

    /// The target of the pointer.
    pub(super) fn pointer(&self) -> Option<PathBuf> {
        std::fs::read_link(self.layout.active()).ok()
    }

    /// The updaters of the active version and of the previous one, as far as they are on this host.
    pub(super) fn updaters(&self) -> Option<(Installed, Option<Installed>)> {
        let name = self.profile.updater.as_ref().filter(|_| self.layout.is_host())?;
        let active = active_version(&RealDisk, &self.layout).ok()??;
        let updater = |version: Version| {
            let path = self.layout.version(&version).join("bin").join(name);
            (self.layout.checksum(&version).exists() && path.exists()).then_some((version, path))
        };
        let previous = self.status().agent_version_previous.filter(|previous| *previous != active);
        Some((updater(active)?, previous.and_then(updater)))
    }

    /// The arguments that select the same agent in another command, from any directory.
    pub(super) fn same_agent(&self) -> &[OsString] {
        &self.same
    }

    /// Rolls back a switch that was interrupted, on a host that is up.
    pub(super) fn roll_back_interrupted(&self) -> Result<(), Failure> {
        self.recover(Recovery::Online).map(drop)
    }

    pub(super) fn status(&self) -> UpdaterStatus {
        last_status(&RealDisk, &self.layout)
    }

    /// The attempt that the agent has woken the updater for, if the control plane has not been asked since.
    pub(super) fn woken_for(&self) -> Option<u64> {
        let text = std::fs::read_to_string(DataDir::new(self.layout.data()).updater_wake()).ok()?;
        self.status().new_wake(text.trim().strip_prefix("attempt ")?.parse().ok()?)
    }

    /// Rolls back a switch that was interrupted. Needs neither the network nor anything that TLS depends on.
    pub(super) fn recover(&self, recovery: Recovery) -> Result<Recovered, Failure> {
        if let Some(packages) = self.system_packages() {
            packages.finish_interrupted_purge().map_err(Failure::failed)?;
        }
        let start = std::env::var(INVOCATION).ok();
        self.environment().recover(recovery, start.as_deref()).map_err(Failure::failed)
    }

    pub(super) fn with_updater<T>(
        &self,
        command: impl FnOnce(&Updater<'_>) -> Result<T, UpdateError>,
    ) -> Result<T, Failure> {
        let packages = self.packages();
        let random = |below: u32| if below == 0 { 0 } else { rand::random_range(0..below) };
        let updater = Updater {
            environment: self.environment(),
            random,
            packages: &*packages,
            woken_for: self.woken_for(),
        };
        command(&updater).map_err(|error| match error {
            UpdateError::NoProxy | UpdateError::Stopped => relay::settled(error),
            // As a switch that is refused: an updater of an older release would not see why.
            UpdateError::Step(ref failure) if failure.step == FailedStep::Service => relay::settled(error),
            other => Failure::failed(other),
        })
    }

    /// The system's packages; nothing for an image or a second agent, which have none.
    fn system_packages(&self) -> Option<SystemPackages> {
        let copy = self.layout.versions().join("kept-config");
        (self.layout.is_host() && !self.layout.is_suffixed())
            .then(|| SystemPackages::new(&self.layout.agent_config(), &self.layout.data(), &copy))
    }

    fn packages(&self) -> Box<dyn Packages> {
        match self.system_packages() {
            Some(packages) => Box::new(packages),
            None => Box::new(NoPackages),
        }
    }

    fn environment(&self) -> Environment<'_> {
        Environment {
            disk: &RealDisk,
            layout: &self.layout,
            profile: &self.profile,
            service: &*self.service,
            agent: &self.agent,
            clock: &SystemClock,
        }
    }
}

impl Connector for Host {
    fn default_proxy(&self) -> Result<Option<String>, HostError> {
        let path = self.layout.agent_config();
        let unreadable = |error: &dyn std::fmt::Display| {
            HostError(format!("{} cannot be read: {error}; mend it, or give --proxy", path.display()))
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&error)),
        };
        let document: serde_json::Value =
            serde_saphyr::from_str(&text).map_err(|error| unreadable(&error))?;
        let own = document.get(&self.profile.name).unwrap_or(&serde_json::Value::Null);
        let proxy = own.get("proxy").or_else(|| own.get("proxy_server")).and_then(|proxy| proxy.as_str());
        let first = || own.get("proxies")?.get(0)?.as_str();
        Ok(proxy.or_else(first).map(str::to_owned))
    }

    fn connect(&self, endpoint: &Endpoint) -> Result<Box<dyn ControlPlane + '_>, HostError> {
        let failed = |error: &dyn std::fmt::Display| HostError(error.to_string());
        let pin = endpoint.ca_pin.as_deref().map(str::parse::<CaPin>).transpose();
        let pin = pin.map_err(|error| HostError(format!("spec.ca_pin of updates.yaml: {error}")))?;
        let trusted = trusted_authorities(&DataDir::new(self.layout.data()).trust());
        let tls = public_client_config(pin, &trusted).map_err(|error| failed(&error))?;
        let source = |options| HttpsSource::new(tls.clone(), options).map_err(|error| failed(&error));
        let answers =
            HttpsOptions { connect: ANSWER_WITHIN, silence: ANSWER_WITHIN, ..HttpsOptions::default() };
        let bar = ProgressLine::new();
        let wanted = self.layout.lock_wanted();
        Ok(Box::new(HttpsControlPlane {
            source: Box::new(source(HttpsOptions::default())?),
            answers: Box::new(source(answers)?),
            disk: &RealDisk,
            layout: &self.layout,
            profile: &self.profile,
            proxy: with_port(endpoint.proxy.clone()),
            base_urls: endpoint.base_urls.clone(),
            limits: TransferLimits::default(),
            interrupt: Interrupt::when(move || LockRequest::is_made(&wanted)),
            progress: Box::new(move |bytes, total| bar.show(bytes, total)),
        }))
    }
}

/// Adds the control plane's default port if there is none.
fn with_port(proxy: String) -> String {
    let has_port = proxy.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { proxy } else { format!("{proxy}:3080") }
}

fn is_good_suffix(suffix: &str) -> bool {
    (1..=32).contains(&suffix.len()) && suffix.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}
