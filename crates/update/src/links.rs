//! The links by which everyone finds the active version: `/usr/local/bin/refit` and its like.

use std::io;
use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::backup::remove_if_there;
use crate::disk::{Disk, FileKind, create_dirs_durably, parent, point_durably, write_durably};
use crate::layout::Layout;
use crate::profile::Profile;

/// A link that there should be.
struct Wanted {
    name: String,
    link: PathBuf,
    target: PathBuf,
}

impl Wanted {
    fn is_placed(&self, disk: &dyn Disk) -> io::Result<bool> {
        Ok(disk.kind(&self.link)? == Some(FileKind::Link) && disk.read_link(&self.link)? == self.target)
    }

    /// Removes it; what somebody else put there stays.
    fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.is_placed(disk)? {
            disk.remove_file(&self.link)?;
            disk.sync_dir(parent(&self.link))?;
        }
        Ok(())
    }
}

/// What a link replaced is kept here until the version has proved itself, and comes back if it does not.
fn kept(layout: &Layout, name: &str) -> PathBuf {
    layout.versions().join("replaced").join(name)
}

/// Every link to the active version.
fn wanted(layout: &Layout, profile: &Profile) -> Vec<Wanted> {
    let binaries = profile.binaries.iter().map(|binary| Wanted {
        name: binary.clone(),
        link: layout.bin_link(binary),
        target: layout.bin_target(binary),
    });
    let units = profile.units().map(|unit| Wanted {
        name: layout.unit_name(unit),
        link: layout.unit_link(unit),
        target: layout.unit_target(unit),
    });
    binaries.chain(units).collect()
}

/// Every link by which the updater is started at boot.
fn wants(layout: &Layout, profile: &Profile) -> Vec<Wanted> {
    let units = profile.updater_units.iter();
    let wanted = units.filter_map(|unit| {
        Some(Wanted {
            name: unit.name.clone(),
            link: layout.wants_link(unit.wanted_by.as_deref()?, &unit.name),
            target: layout.wants_target(&unit.name),
        })
    });
    wanted.collect()
}

/// Makes the links. What else was there is put aside.
pub(crate) fn place(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        if wanted.is_placed(disk)? {
            continue;
        }
        create_dirs_durably(disk, parent(&wanted.link), 0o755)?;
        let aside = kept(layout, &wanted.name);
        if disk.kind(&wanted.link)?.is_some() && disk.kind(&aside)?.is_none() {
            put_aside(disk, &wanted.link, &aside)?;
        }
        point_durably(disk, &wanted.link, &wanted.target)?;
    }
    if layout.is_suffixed() {
        for (unit, template) in &profile.suffix_drop_ins {
            let (path, text) = (layout.drop_in(unit), layout.drop_in_text(template));
            if disk.read(&path).ok().as_deref() != Some(text.as_bytes()) {
                create_dirs_durably(disk, parent(&path), 0o755)?;
                write_durably(disk, &path, text.as_bytes(), 0o644)?;
            }
        }
    }
    Ok(())
}

/// Has the updater started at boot.
pub(crate) fn place_wants(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wants(layout, profile) {
        if !wanted.is_placed(disk)? {
            create_dirs_durably(disk, parent(&wanted.link), 0o755)?;
            point_durably(disk, &wanted.link, &wanted.target)?;
        }
    }
    Ok(())
}

/// Removes every link and drop-in that is this agent's.
pub(crate) fn remove(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wants(layout, profile).iter().chain(&wanted(layout, profile)) {
        wanted.remove(disk)?;
    }
    if layout.is_suffixed() {
        for unit in profile.suffix_drop_ins.keys() {
            remove_if_there(disk, &layout.drop_in(unit))?;
        }
    }
    Ok(())
}

/// A copy, because the link must never be absent, and may be on another file system.
fn put_aside(disk: &dyn Disk, link: &Path, aside: &Path) -> io::Result<()> {
    create_dirs_durably(disk, parent(aside), 0o700)?;
    match disk.kind(link)? {
        Some(FileKind::Link) => point_durably(disk, aside, &disk.read_link(link)?),
        _ => write_durably(disk, aside, &disk.read(link)?, 0o755),
    }
}

/// Puts back what the links replaced, where nothing was active before.
pub(crate) fn put_back(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        let aside = kept(layout, &wanted.name);
        match disk.kind(&aside)? {
            Some(FileKind::Link) => point_durably(disk, &wanted.link, &disk.read_link(&aside)?)?,
            Some(_) => write_durably(disk, &wanted.link, &disk.read(&aside)?, 0o755)?,
            None => wanted.remove(disk)?,
        }
    }
    forget_replaced(disk, layout)
}

/// What was replaced is no longer needed: the version has proved itself.
pub(crate) fn forget_replaced(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    let folder = layout.versions().join("replaced");
    match disk.kind(&folder)? {
        Some(_) => {
            disk.remove_dir_all(&folder)?;
            disk.sync_dir(&layout.versions())
        }
        None => Ok(()),
    }
}

/// Removes links to binaries that the active version does not have.
pub(crate) fn drop_dangling(
    disk: &dyn Disk,
    layout: &Layout,
    profile: &Profile,
    version: &Version,
) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        let is_binary = profile.binaries.contains(&wanted.name);
        if is_binary && disk.kind(&layout.version(version).join("bin").join(&wanted.name))?.is_none() {
            wanted.remove(disk)?;
        }
    }
    Ok(())
}
