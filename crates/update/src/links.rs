//! The links to the binaries of the active version, such as `/usr/local/bin/refit`. What they replace is kept until the
//! version is healthy. Called by `switch`, `rollback` and the commands.

use std::io;
use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::disk::{
    Disk, FileKind, create_dirs_durably, parent, point_durably, remove_dir_durably, write_durably,
};
use crate::layout::Layout;
use crate::profile::Profile;

/// A link that the updater places.
pub(crate) struct ManagedLink {
    pub(crate) name: String,
    pub(crate) link: PathBuf,
    pub(crate) target: PathBuf,
}

impl ManagedLink {
    fn is_placed(&self, disk: &dyn Disk) -> io::Result<bool> {
        Ok(disk.kind(&self.link)? == Some(FileKind::Link) && disk.read_link(&self.link)? == self.target)
    }

    /// Makes the link, in place of whatever else is there.
    pub(crate) fn place(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.is_placed(disk)? {
            return Ok(());
        }
        create_dirs_durably(disk, parent(&self.link), 0o755)?;
        point_durably(disk, &self.link, &self.target)
    }

    /// Removes the link; anything else at its path stays.
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

/// Makes the links. A copy of what they replace is kept.
pub(crate) fn place(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        if !wanted.is_placed(disk)? {
            save_replaced(disk, layout, &wanted.name, &wanted.link)?;
            wanted.place(disk)?;
        }
    }
    Ok(())
}

/// Every path at which a link to a binary is written.
pub(crate) fn written_paths(layout: &Layout, profile: &Profile) -> Vec<PathBuf> {
    wanted(layout, profile).into_iter().map(|wanted| wanted.link).collect()
}

/// Whether any link of this agent is placed.
pub(crate) fn is_any_placed(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<bool> {
    any_placed(disk, &wanted(layout, profile))
}

/// Whether any of the links is placed.
pub(crate) fn any_placed(disk: &dyn Disk, links: &[ManagedLink]) -> io::Result<bool> {
    for link in links {
        if link.is_placed(disk)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the links of this agent.
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
            let was_there = disk.kind(&wanted.link)?.is_some();
            wanted.remove(disk)?;
            if was_there && disk.kind(&wanted.link)?.is_none() {
                tracing::info!("Removed {}, which {version} does not have", wanted.link.display());
            }
        }
    }
    Ok(())
}

/// Restores what the links of a first installation replaced.
pub(crate) fn restore_all(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for wanted in wanted(layout, profile) {
        if !restore_replaced(disk, layout, &wanted.name, &wanted.link)? {
            wanted.remove(disk)?;
        }
    }
    Ok(())
}

/// Where the copy of a replaced file is kept until the version is healthy.
fn replaced_path(layout: &Layout, name: &str) -> PathBuf {
    layout.versions().join("replaced").join(name)
}

/// Keeps a copy of a file or link that is about to be replaced: a copy, because the original must never be missing, and
/// may be on another file system.
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

/// Restores a replaced file or link; returns whether a copy of it was kept.
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

/// Removes the copies: the version is healthy.
pub(crate) fn remove_replaced(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    remove_dir_durably(disk, &layout.versions().join("replaced"))
}
