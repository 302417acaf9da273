use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// Anyone on the host may read it; only its owner may write.
pub(crate) const PUBLIC: u32 = 0o644;

/// Replaces a file whole or not at all, even through a power cut.
pub(crate) fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let directory = directory_of(path);
    aside(directory, contents, mode)?.persist(path).map_err(|refused| refused.error)?;
    File::open(directory)?.sync_all()
}

/// Like [`replace`], but fails with `AlreadyExists` when there is such a file.
pub(crate) fn create(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let directory = directory_of(path);
    aside(directory, contents, mode)?.persist_noclobber(path).map_err(|refused| refused.error)?;
    File::open(directory)?.sync_all()
}

/// The contents on disk, under a name of their own in `directory`.
pub(crate) fn aside(directory: &Path, contents: &[u8], mode: u32) -> io::Result<NamedTempFile> {
    let mut aside = tempfile::Builder::new().prefix(".refit-").suffix(".tmp").tempfile_in(directory)?;
    aside.as_file().set_permissions(Permissions::from_mode(mode))?;
    aside.write_all(contents)?;
    aside.as_file().sync_all()?;
    Ok(aside)
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
