//! The links by which everyone finds the active version: `/usr/local/bin/refit` and its like.

use std::io;
use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::disk::{Disk, FileKind, create_dirs_durably, parent, point_durably, write_durably};
use crate::layout::Layout;
use crate::profile::Profile;

/// A link that there should be.
pub(crate) struct ManagedLink {
    pub(crate) name: String,
    pub(crate) link: PathBuf,
    pub(crate) target: PathBuf,
}

impl ManagedLink {
    fn is_placed(&self, disk: &dyn Disk) -> io::Result<bool> {
        Ok(disk.kind(&self.link)? == Some(FileKind::Link) && disk.read_link(&self.link)? == self.target)
    }

    /// Makes it, whatever else is there.
    pub(crate) fn place(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.is_placed(disk)? {
            return Ok(());
        }
        create_dirs_durably(disk, parent(&self.link), 0o755)?;
        point_durably(disk, &self.link, &self.target)
    }

    /// Removes it; what somebody else put there stays.
    pub(crate) fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.is_placed(disk)? {
            disk.remove_file(&self.link)?;
            disk.sync_dir(parent(&self.link))?;
        }
        Ok(())
    }
}

fn wanted(layout: &Layout, profile: &Profile) -> Vec<ManagedLink> {
    let wanted = profile.binaries.iter().map(|binary| ManagedLink {
        name: binary.clone(),
        link: layout.bin_link(binary),
        target: layout.bin_target(binary),
    });
    wanted.collect()
}

/// Makes the links. What else was there is put copy.
pub(crate) fn place(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        if !wanted.is_placed(disk)? {
            save_replaced(disk, layout, &wanted.name, &wanted.link)?;
            wanted.place(disk)?;
        }
    }
    Ok(())
}

/// Whether any link is this agent's.
pub(crate) fn is_any_placed(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<bool> {
    any_placed(disk, &wanted(layout, profile))
}

/// Whether any of these is there.
pub(crate) fn any_placed(disk: &dyn Disk, links: &[ManagedLink]) -> io::Result<bool> {
    for link in links {
        if link.is_placed(disk)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes every link that is this agent's.
pub(crate) fn remove(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    wanted(layout, profile).iter().try_for_each(|wanted| wanted.remove(disk))
}

/// Removes links to binaries that the active version does not have.
pub(crate) fn remove_dangling(
    disk: &dyn Disk,
    layout: &Layout,
    profile: &Profile,
    version: &Version,
) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        if disk.kind(&layout.version(version).join("bin").join(&wanted.name))?.is_none() {
            wanted.remove(disk)?;
        }
    }
    Ok(())
}

/// Puts back what the links replaced, where nothing was active before.
pub(crate) fn restore_all(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        if !restore_replaced(disk, layout, &wanted.name, &wanted.link)? {
            wanted.remove(disk)?;
        }
    }
    Ok(())
}

/// What was replaced is kept here until the version has proved itself, and comes back if it does not.
fn replaced_path(layout: &Layout, name: &str) -> PathBuf {
    layout.versions().join("replaced").join(name)
}

/// A copy, because the original must never be absent, and may be on another file system.
pub(crate) fn save_replaced(disk: &dyn Disk, layout: &Layout, name: &str, path: &Path) -> io::Result<()> {
    let copy = replaced_path(layout, name);
    if disk.kind(&copy)?.is_some() {
        return Ok(());
    }
    match disk.kind(path)? {
        None => Ok(()),
        Some(kind) => {
            create_dirs_durably(disk, parent(&copy), 0o700)?;
            match kind {
                FileKind::Link => point_durably(disk, &copy, &disk.read_link(path)?),
                _ => write_durably(disk, &copy, &disk.read(path)?, 0o755),
            }
        }
    }
}

/// Puts one thing back, if it was put copy.
pub(crate) fn restore_replaced(
    disk: &dyn Disk,
    layout: &Layout,
    name: &str,
    path: &Path,
) -> io::Result<bool> {
    let copy = replaced_path(layout, name);
    match disk.kind(&copy)? {
        Some(FileKind::Link) => point_durably(disk, path, &disk.read_link(&copy)?)?,
        Some(_) => write_durably(disk, path, &disk.read(&copy)?, 0o755)?,
        None => return Ok(false),
    }
    Ok(true)
}

/// What was replaced is no longer needed: the version has proved itself.
pub(crate) fn remove_replaced(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    let folder = layout.versions().join("replaced");
    match disk.kind(&folder)? {
        Some(_) => {
            disk.remove_dir_all(&folder)?;
            disk.sync_dir(&layout.versions())
        }
        None => Ok(()),
    }
}
