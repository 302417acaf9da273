//! The removal of everything that the updater has put on a host. Called by `refit-update uninstall`.

use std::io;

use crate::disk::{Disk, parent, remove_dir_durably, remove_durably, remove_if_empty};
use crate::environment::Environment;
use crate::failure::FailedStep;
use crate::layout::Layout;
use crate::outcome::UpdateError;
use crate::profile::Profile;
use crate::updater::Updater;
use crate::{links, units};

/// Files among the versions that prove no installation: the lock of any command, who waits for it, and the wake file of an agent.
const NOT_INSTALLED: [&str; 3] = ["lock", "lock.wanted", "wake"];

/// Whether the updater has installed anything on the host.
pub fn is_installed(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<bool> {
    if disk.kind(&layout.active())?.is_some()
        || disk.kind(&layout.removed_versions())?.is_some()
        || links::is_any_placed(disk, layout, profile)?
        || units::is_any_wanted(disk, layout, profile)?
    {
        return Ok(true);
    }
    match disk.kind(&layout.versions())? {
        Some(_) => {
            let names = disk.list(&layout.versions())?;
            Ok(names.iter().any(|name| !NOT_INSTALLED.iter().any(|other| name == other)))
        }
        None => Ok(false),
    }
}

impl Updater<'_> {
    /// Stops the agent and removes what the updater has installed: links, units, versions and its own files. The agent's
    /// configuration, database and identity stay. Returns whether there was anything; if not, nothing is touched.
    pub fn uninstall(&self) -> Result<bool, UpdateError> {
        let Environment { disk, layout, profile, service, .. } = self.environment;
        if !is_installed(disk, layout, profile).map_err(FailedStep::Uninstall.failed())? {
            return Ok(false);
        }
        let _manager = service.manager().map_err(FailedStep::Uninstall.failed())?;
        let mut config = self.load_config()?;
        config.enabled = false;
        if disk.kind(&layout.config()).map_err(FailedStep::Uninstall.failed())?.is_some() {
            config.store(disk, &layout.config())?;
        }
        service.set_updates(false).map_err(FailedStep::Uninstall.failed())?;
        let active = self.load_active()?;
        if active.is_some() {
            service.stop().map_err(FailedStep::Uninstall.failed())?;
            tracing::info!("Stopped {}", layout.unit());
            service.set_enabled(false).map_err(FailedStep::Uninstall.failed())?;
        }
        links::remove(disk, layout, profile).map_err(FailedStep::Uninstall.failed())?;
        if let Some(folder) = layout.own_bin() {
            remove_if_empty(disk, &folder).map_err(FailedStep::Uninstall.failed())?;
            remove_if_empty(disk, parent(&folder)).map_err(FailedStep::Uninstall.failed())?;
        }
        units::remove(disk, layout, profile, active.as_ref()).map_err(FailedStep::Uninstall.failed())?;
        tracing::info!("Removed the links and units");
        for link in [layout.active_back(), layout.active()] {
            remove_durably(disk, &link).map_err(FailedStep::Uninstall.failed())?;
        }
        service.refresh().map_err(FailedStep::Uninstall.failed())?;
        remove_versions(disk, layout).map_err(FailedStep::Uninstall.failed())?;
        tracing::info!("Removed {}", layout.versions().display());
        Ok(true)
    }
}

/// Removes the versions under another name, by which an uninstallation that was cut is known and can be finished: a
/// directory that is half empty could not be told from one in which nothing was ever installed.
fn remove_versions(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    let removed = layout.removed_versions();
    remove_dir_durably(disk, &removed)?;
    if disk.kind(&layout.versions())?.is_some() {
        disk.rename(&layout.versions(), &removed)?;
        disk.sync_dir(&layout.data())?;
    }
    remove_dir_durably(disk, &removed)
}
