//! The takeover from the system's package of the same agent: purges the package and restores the state that its service
//! had. Called by `enable` after its own installation is healthy.

use std::io;

use serde::{Deserialize, Serialize};

use crate::disk::{remove_if_present, write_durably};
use crate::environment::Environment;
use crate::failure::{FailedStep, StepFailed};
use crate::host::{Packages, ServiceState};
use crate::links;
use crate::units;
use crate::versions::active_version;

/// The state of the service before the purge, which stops, disables and masks units of the same name. It is on the disk
/// until the state is restored, so that an interrupted takeover can be continued.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ServiceSnapshot {
    enabled: bool,
    running: bool,
    masked: bool,
}

impl Environment<'_> {
    /// Purges the package, if there is one, and restores the state of the service.
    pub(crate) fn take_over(&self, packages: &dyn Packages) -> Result<(), StepFailed> {
        let Some(package) = self.profile.package.as_ref().filter(|_| !self.layout.is_suffixed()) else {
            return Ok(());
        };
        let note = self.layout.versions().join("takeover.json");
        if packages.is_installed(package).map_err(FailedStep::Package.failed())? {
            if self.disk.kind(&note).map_err(FailedStep::Package.failed())?.is_none() {
                let before = self.service_snapshot()?;
                let bytes = serde_json::to_vec(&before)
                    .map_err(io::Error::other)
                    .map_err(FailedStep::Package.failed())?;
                write_durably(self.disk, &note, &bytes, 0o600).map_err(FailedStep::Package.failed())?;
            }
            packages.purge(package).map_err(FailedStep::Package.failed())?;
            tracing::info!("Purged the package {package}; its configuration and data stay");
        }
        let Ok(bytes) = self.disk.read(&note) else { return Ok(()) };
        let before =
            serde_json::from_slice(&bytes).map_err(io::Error::other).map_err(FailedStep::Package.failed())?;
        self.restore_service(before)?;
        remove_if_present(self.disk, &note).map_err(FailedStep::Package.failed())?;
        self.disk.sync_dir(&self.layout.versions()).map_err(FailedStep::Package.failed())
    }

    fn service_snapshot(&self) -> Result<ServiceSnapshot, StepFailed> {
        Ok(ServiceSnapshot {
            enabled: self.service.is_enabled().map_err(FailedStep::Package.failed())?,
            running: self.service.state().map_err(FailedStep::Package.failed())? != ServiceState::Stopped,
            masked: units::is_masked(self.disk, self.layout).map_err(FailedStep::Package.failed())?,
        })
    }

    fn restore_service(&self, before: ServiceSnapshot) -> Result<(), StepFailed> {
        if !before.masked && units::is_masked(self.disk, self.layout).map_err(FailedStep::Package.failed())? {
            remove_if_present(self.disk, &self.layout.mask()).map_err(FailedStep::Package.failed())?;
        }
        links::place(self.disk, self.layout, self.profile).map_err(FailedStep::Link.failed())?;
        if let Some(active) = active_version(self.disk, self.layout).map_err(FailedStep::Link.failed())? {
            self.place_units(&active, false).map_err(FailedStep::Link.failed())?;
        }
        self.service.refresh().map_err(FailedStep::Package.failed())?;
        if before.enabled {
            self.service.set_enabled(true).map_err(FailedStep::Package.failed())?;
        }
        let now = self.service_snapshot()?;
        match before.running && !now.running {
            true => self.service.start().map_err(FailedStep::Package.failed()),
            false => Ok(()),
        }
    }
}
