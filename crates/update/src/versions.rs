//! The versions on the disk: which one is active, which are complete, and which are removed after a switch.

use std::io;

use refit_types::Version;

use crate::disk::{Disk, FileKind, remove_if_present};
use crate::layout::Layout;

/// The version that the `active` link points to; nothing where the link is missing or names no version.
pub fn active_version(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<Version>> {
    match disk.kind(&layout.active())? {
        Some(FileKind::Link) => {
            let target = disk.read_link(&layout.active())?;
            let name = target.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            Ok(name.and_then(|name| name.parse().ok()))
        }
        _ => Ok(None),
    }
}

/// Whether a version was downloaded, verified and unpacked to its end.
pub fn is_complete(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<bool> {
    Ok(disk.kind(&layout.checksum(version))?.is_some())
}

/// Removes all versions but these: the active one and those that it may go back to. The checksum of a version goes first, so that a
/// removal that is interrupted leaves no version that looks complete.
pub(crate) fn remove_others(disk: &dyn Disk, layout: &Layout, kept: &[&Version]) -> io::Result<()> {
    for name in disk.list(&layout.versions())? {
        let Some(version) = name.to_str().and_then(|name| name.parse::<Version>().ok()) else { continue };
        if kept.contains(&&version) {
            continue;
        }
        let directory = layout.versions().join(&name);
        remove_if_present(disk, &directory.join("sha256"))?;
        disk.sync_dir(&directory)?;
        disk.remove_dir_all(&directory)?;
        disk.sync_dir(&layout.versions())?;
        tracing::info!("Removed {}", directory.display());
    }
    Ok(())
}
