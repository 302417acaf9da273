//! Files that appear whole or not at all, even through a power cut: written aside in the same directory,
//! synced, renamed, and the directory synced. The agent, the server and the command line write through it.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// Anyone on the host may read it; only its owner may write.
pub const PUBLIC: u32 = 0o644;
/// Only its owner may read or write it.
pub const PRIVATE: u32 = 0o600;

/// Replaces a file. It replaces what was there, also a link and not the link's target.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    stage(path, contents, mode)?.persist(path).map_err(|refused| refused.error)?;
    sync_directory(path)
}

/// Like [`replace`], but fails with `AlreadyExists` when there is such a file.
pub fn create(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    stage(path, contents, mode)?.persist_noclobber(path).map_err(|refused| refused.error)?;
    sync_directory(path)
}

/// Renames a file that was written and synced under another name in the same directory.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_directory(to)
}

/// The contents on disk, beside `path` under a name of their own, for callers who do something to the file
/// before it takes its name.
pub fn stage(path: &Path, contents: &[u8], mode: u32) -> io::Result<NamedTempFile> {
    let mut staged =
        tempfile::Builder::new().prefix(".refit-").suffix(".tmp").tempfile_in(directory_of(path))?;
    staged.as_file().set_permissions(Permissions::from_mode(mode))?;
    staged.write_all(contents)?;
    staged.as_file().sync_all()?;
    Ok(staged)
}

/// Makes renames beside `path` durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// The directory that a file at `path` is in.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_whole_and_gets_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for mode in [PRIVATE, PUBLIC, 0o755] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let old = File::open(&path).unwrap();

            replace(&path, b"new", mode).unwrap();

            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
            let mut still = String::new();
            (&old).read_to_string(&mut still).unwrap();
            assert_eq!(still, "old", "the old file itself must not be written to");
            assert_eq!(names(directory.path()), ["file"]);
        }
    }

    #[test]
    fn a_link_is_replaced_and_not_its_target() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "target").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace(&link, b"new", PRIVATE).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"target");
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
    }

    #[test]
    fn only_what_is_not_there_is_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        create(&path, b"first", PUBLIC).unwrap();
        let refused = create(&path, b"second", PUBLIC).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(directory.path()), ["file"]);
    }

    #[test]
    fn a_failed_write_leaves_everything_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, b"new", PRIVATE).is_err());
        assert_eq!(names(directory.path()), ["taken"]);
        for nowhere in [directory.path().join("no/such").as_path(), Path::new("/"), Path::new("")] {
            assert!(replace(nowhere, b"new", PRIVATE).is_err(), "{nowhere:?}");
        }
    }
}
