//! The units of the active version, for the service manager. Called by `switch`, `rollback` and the commands.
//!
//! They are copies, not links: systemd reads them at boot before it has mounted the file system of the versions, and
//! `systemctl enable` resolves links and would record a version that is removed one day.

use std::io;
use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::disk::{
    Disk, FileKind, create_dirs_durably, parent, remove_durably, remove_if_empty, write_durably,
};
use crate::layout::Layout;
use crate::links::{ManagedLink, any_placed, restore_replaced, save_replaced};
use crate::profile::Profile;

/// Copies the units of a version into place and returns whether any has changed. On a fresh host, a copy of what they
/// replace is kept.
pub(crate) fn place(
    disk: &dyn Disk,
    layout: &Layout,
    profile: &Profile,
    version: &Version,
    is_fresh: bool,
) -> io::Result<bool> {
    let mut has_changed = false;
    for unit in profile.units() {
        let text = disk.read(&layout.unit_source(version, unit))?;
        let path = layout.unit_path(unit);
        if disk.read(&path).ok().as_deref() != Some(text.as_slice()) {
            if is_fresh {
                save_replaced(disk, layout, &layout.unit_name(unit), &path)?;
            }
            create_dirs_durably(disk, parent(&path), 0o755)?;
            write_durably(disk, &path, &text, 0o644)?;
            has_changed = true;
        }
    }
    if layout.is_suffixed() {
        for (unit, template) in &profile.suffix_drop_ins {
            let (path, text) = (layout.drop_in(unit), layout.drop_in_text(template));
            if disk.read(&path).ok().as_deref() != Some(text.as_bytes()) {
                create_dirs_durably(disk, parent(&path), 0o755)?;
                write_durably(disk, &path, text.as_bytes(), 0o644)?;
                has_changed = true;
            }
        }
    }
    Ok(has_changed)
}

/// Keeps a copy of each unit that the new version changes, so that a rollback needs only renames and works on a full
/// disk.
pub(crate) fn save_for_rollback(
    disk: &dyn Disk,
    layout: &Layout,
    profile: &Profile,
    to: &Version,
) -> io::Result<()> {
    for unit in profile.units() {
        let path = layout.unit_path(unit);
        let Ok(text) = disk.read(&path) else { continue };
        if disk.read(&layout.unit_source(to, unit))? != text {
            write_durably(disk, &saved_path(&path), &text, 0o644)?;
        }
    }
    Ok(())
}

/// Restores the units that were saved for a rollback; returns whether there were any.
pub(crate) fn restore_saved(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<bool> {
    let mut has_changed = false;
    for path in profile.units().map(|unit| layout.unit_path(unit)) {
        if disk.kind(&saved_path(&path))?.is_some() {
            disk.rename(&saved_path(&path), &path)?;
            disk.sync_dir(parent(&path))?;
            has_changed = true;
        }
    }
    Ok(has_changed)
}

/// Removes the units that were saved for a rollback, so that the next switch does not restore them.
pub(crate) fn remove_saved(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    let mut saved = profile.units().map(|unit| saved_path(&layout.unit_path(unit)));
    saved.try_for_each(|path| remove_durably(disk, &path))
}

/// Every path at which a unit, a copy of one or a link to one is written.
pub(crate) fn written_paths(layout: &Layout, profile: &Profile) -> Vec<PathBuf> {
    let units: Vec<PathBuf> = profile.units().map(|unit| layout.unit_path(unit)).collect();
    let saved = units.iter().map(|path| saved_path(path)).collect::<Vec<_>>();
    let drop_ins = profile.suffix_drop_ins.keys().map(|unit| layout.drop_in(unit));
    let wants = wants(layout, profile).into_iter().map(|wanted| wanted.link);
    units.into_iter().chain(saved).chain(drop_ins).chain(wants).collect()
}

/// Named so that the service manager does not read it as a unit.
fn saved_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".back");
    name.into()
}

/// Restores what the units of a first installation replaced, and removes those that replaced nothing.
pub(crate) fn restore_all(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for unit in profile.units() {
        let path = layout.unit_path(unit);
        if !restore_replaced(disk, layout, &layout.unit_name(unit), &path)? {
            remove_durably(disk, &path)?;
        }
    }
    Ok(())
}

/// The links that start the updater at boot.
fn wants(layout: &Layout, profile: &Profile) -> Vec<ManagedLink> {
    let units = profile.updater_units.iter();
    let wanted = units.filter_map(|unit| {
        Some(ManagedLink {
            name: unit.name.clone(),
            link: layout.wants_link(unit.wanted_by.as_deref()?, &unit.name),
            target: layout.wants_target(&unit.name),
        })
    });
    wanted.collect()
}

/// Makes the updater start at boot.
pub(crate) fn place_wants(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    wants(layout, profile).iter().try_for_each(|wanted| wanted.place(disk))
}

/// Whether any unit of the updater starts at boot.
pub(crate) fn is_any_wanted(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<bool> {
    any_placed(disk, &wants(layout, profile))
}

/// Whether the service is masked, by an operator or as a package that was removed but not purged leaves it.
pub(crate) fn is_masked(disk: &dyn Disk, layout: &Layout) -> io::Result<bool> {
    for mask in [layout.mask(), layout.runtime_mask()] {
        if disk.kind(&mask)? == Some(FileKind::Link) && disk.read_link(&mask)? == Path::new("/dev/null") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the units of the active version and the links that start them. Units of others stay.
pub(crate) fn remove(
    disk: &dyn Disk,
    layout: &Layout,
    profile: &Profile,
    active: Option<&Version>,
) -> io::Result<()> {
    wants(layout, profile).iter().try_for_each(|wanted| wanted.remove(disk))?;
    let Some(active) = active else { return Ok(()) };
    for unit in profile.units() {
        let path = layout.unit_path(unit);
        if disk.read(&path).ok() == disk.read(&layout.unit_source(active, unit)).ok() {
            remove_durably(disk, &path)?;
        }
        if layout.is_suffixed() {
            remove_durably(disk, &layout.drop_in(unit))?;
            remove_if_empty(disk, parent(&layout.drop_in(unit)))?;
        }
    }
    Ok(())
}
