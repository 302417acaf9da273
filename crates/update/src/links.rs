//! The links by which everyone finds the active version: `/usr/local/bin/refit` and its like.

use std::io;
use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::backup::remove_if_there;
use crate::disk::{Disk, FileKind, create_dirs_durably, parent, point_durably};
use crate::layout::Layout;
use crate::profile::Profile;

/// What a link replaced is kept here until the version has proved itself, and comes back if it does not.
fn kept(layout: &Layout, name: &str) -> PathBuf {
    layout.versions().join("replaced").join(name)
}

/// Every link that there should be, and what it says.
fn wanted(layout: &Layout, profile: &Profile) -> Vec<(String, PathBuf, PathBuf)> {
    let mut links: Vec<_> = profile
        .binaries
        .iter()
        .map(|binary| (binary.clone(), layout.bin_link(binary), layout.bin_target(binary)))
        .collect();
    links.push((layout.unit().to_owned(), layout.unit_link(), layout.unit_target(&profile.unit)));
    links
}

/// Makes the links. What else was there is put aside.
pub(crate) fn place(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for (name, link, target) in wanted(layout, profile) {
        if disk.kind(&link)? == Some(FileKind::Link) && disk.read_link(&link)? == target {
            continue;
        }
        create_dirs_durably(disk, parent(&link), 0o755)?;
        let aside = kept(layout, &name);
        if disk.kind(&link)?.is_some() && disk.kind(&aside)?.is_none() {
            put_aside(disk, &link, &aside)?;
        }
        point_durably(disk, &link, &target)?;
    }
    Ok(())
}

/// A copy, because the link must never be absent, and may be on another file system.
fn put_aside(disk: &dyn Disk, link: &Path, aside: &Path) -> io::Result<()> {
    create_dirs_durably(disk, parent(aside), 0o700)?;
    match disk.kind(link)? {
        Some(FileKind::Link) => point_durably(disk, aside, &disk.read_link(link)?),
        _ => crate::write_durably(disk, aside, &disk.read(link)?, 0o755),
    }
}

/// Puts back what the links replaced, where nothing was active before.
pub(crate) fn put_back(disk: &dyn Disk, layout: &Layout, profile: &Profile) -> io::Result<()> {
    for (name, link, target) in wanted(layout, profile) {
        let is_ours = disk.kind(&link)? == Some(FileKind::Link) && disk.read_link(&link)? == target;
        let aside = kept(layout, &name);
        match disk.kind(&aside)? {
            Some(FileKind::Link) => point_durably(disk, &link, &disk.read_link(&aside)?)?,
            Some(_) => crate::write_durably(disk, &link, &disk.read(&aside)?, 0o755)?,
            None if is_ours => {
                disk.remove_file(&link)?;
                disk.sync_dir(parent(&link))?;
            }
            None => {}
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
    for binary in &profile.binaries {
        let link = layout.bin_link(binary);
        let is_ours =
            disk.kind(&link)? == Some(FileKind::Link) && disk.read_link(&link)? == layout.bin_target(binary);
        if is_ours && disk.kind(&layout.version(version).join("bin").join(binary))?.is_none() {
            remove_if_there(disk, &link)?;
            disk.sync_dir(parent(&link))?;
        }
    }
    Ok(())
}
