//! The agent's configuration, preserved through a purge that may delete or change it, and through an interruption of the
//! purge: a durable copy exists from before the purge until after the restore.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, RealDisk, create_dirs_durably, parent, remove_if_present, write_durably_as};

/// More than a configuration needs.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The configuration, and where its copy is during a purge.
#[derive(Debug, Clone)]
pub(super) struct PreservedConfig {
    config: PathBuf,
    copy: PathBuf,
}

/// The content and access rights of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSnapshot {
    bytes: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
}

impl PreservedConfig {
    pub(super) fn new(config: &Path, copy: &Path) -> Self {
        Self { config: config.to_owned(), copy: copy.to_owned() }
    }

    pub(super) fn copy(&self) -> &Path {
        &self.copy
    }

    /// Makes a durable copy of the configuration, if there is one.
    pub(super) fn save_copy(&self) -> io::Result<Option<FileSnapshot>> {
        let Some(snapshot) = read(&self.config)? else { return Ok(None) };
        write(&self.copy, &snapshot)?;
        Ok(Some(snapshot))
    }

    /// Restores the configuration, even if the copy was deleted meanwhile, and removes the copy.
    pub(super) fn restore(&self, preserved: Option<FileSnapshot>) -> io::Result<()> {
        let Some(snapshot) = preserved else { return Ok(()) };
        if read(&self.config)?.as_ref() != Some(&snapshot) {
            write(&self.config, &snapshot)?;
        }
        self.remove_copy()
    }

    /// Finishes an interrupted purge. A configuration that exists is kept, because it may have been changed by a person
    /// and not by the purge; a copy that differs from it is then renamed and stays.
    pub(super) fn finish_interrupted(&self) -> io::Result<()> {
        let Some(snapshot) = read(&self.copy)? else { return Ok(()) };
        match read(&self.config)? {
            None => {
                tracing::warn!("a purge was interrupted: restoring {}", self.config.display());
                write(&self.config, &snapshot)?;
            }
            Some(found) if found != snapshot => {
                let old = with_suffix(&self.copy, ".old");
                RealDisk.rename(&self.copy, &old)?;
                let (config, old) = (self.config.display(), old.display());
                tracing::warn!(
                    "a purge was interrupted, and {config} has changed since it began; the file before it is {old}"
                );
                return RealDisk.sync_dir(parent(&self.copy));
            }
            Some(_) => {}
        }
        self.remove_copy()
    }

    /// The purge may have deleted the directory of the copy.
    fn remove_copy(&self) -> io::Result<()> {
        remove_if_present(&RealDisk, &self.copy)?;
        match RealDisk.sync_dir(parent(&self.copy)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn read(path: &Path) -> io::Result<Option<FileSnapshot>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return Err(io::Error::other(format!("{} is not a file that can be preserved", path.display())));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(FileSnapshot { bytes, mode: found.mode() & 0o7777, owner: (found.uid(), found.gid()) }))
}

fn write(path: &Path, snapshot: &FileSnapshot) -> io::Result<()> {
    create_dirs_durably(&RealDisk, parent(path), 0o755)?;
    write_durably_as(&RealDisk, path, &snapshot.bytes, snapshot.owner, snapshot.mode)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn preserved() -> (TempDir, PreservedConfig) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("etc")).unwrap();
        fs::write(at("etc/refit.yaml"), "changed by hand").unwrap();
        fs::set_permissions(at("etc/refit.yaml"), Permissions::from_mode(0o640)).unwrap();
        let preserved = PreservedConfig::new(&at("etc/refit.yaml"), &at("data/versions/preserved"));
        (folder, preserved)
    }

    fn current(preserved: &PreservedConfig) -> (String, u32) {
        let mode = fs::metadata(&preserved.config).unwrap().mode() & 0o7777;
        (fs::read_to_string(&preserved.config).unwrap(), mode)
    }

    #[test]
    fn what_a_purge_deletes_or_changes_is_put_back() {
        let changes: [fn(&PreservedConfig); 5] = [
            |_| {},
            |preserved| fs::remove_file(&preserved.config).unwrap(),
            |preserved| fs::write(&preserved.config, "default").unwrap(),
            |preserved| fs::set_permissions(&preserved.config, Permissions::from_mode(0o644)).unwrap(),
            |preserved| {
                fs::remove_dir_all(parent(&preserved.config)).unwrap();
                fs::remove_dir_all(parent(&preserved.copy)).unwrap();
            },
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let (_folder, preserved) = preserved();
            let snapshot = preserved.save_copy().unwrap();
            assert_eq!(read(&preserved.copy).unwrap(), snapshot);
            change(&preserved);
            preserved.restore(snapshot).unwrap();
            assert_eq!(current(&preserved), ("changed by hand".into(), 0o640), "{n}");
            assert!(!preserved.copy.exists() && !with_suffix(&preserved.config, ".new").exists(), "{n}");
        }
    }

    #[test]
    fn an_interrupted_purge_is_finished() {
        let (_folder, preserved) = preserved();
        preserved.finish_interrupted().unwrap();
        assert_eq!(current(&preserved), ("changed by hand".into(), 0o640), "nothing was interrupted");

        preserved.save_copy().unwrap();
        fs::remove_file(&preserved.config).unwrap();
        // Interrupted while it was restored: half of it is in the temporary file.
        fs::write(with_suffix(&preserved.config, ".new"), "chang").unwrap();
        preserved.finish_interrupted().unwrap();
        assert_eq!(current(&preserved), ("changed by hand".into(), 0o640));
        assert!(!preserved.copy.exists());

        preserved.save_copy().unwrap();
        preserved.finish_interrupted().unwrap();
        assert!(!preserved.copy.exists(), "interrupted before anything was removed");

        preserved.save_copy().unwrap();
        fs::write(&preserved.config, "edited afterwards").unwrap();
        preserved.finish_interrupted().unwrap();
        assert_eq!(current(&preserved).0, "edited afterwards");
        assert_eq!(fs::read_to_string(with_suffix(&preserved.copy, ".old")).unwrap(), "changed by hand");
        assert!(!preserved.copy.exists());
    }

    #[test]
    fn what_is_not_there_is_not_made() {
        let (_folder, preserved) = preserved();
        fs::remove_file(&preserved.config).unwrap();
        let snapshot = preserved.save_copy().unwrap();
        assert_eq!(snapshot, None);
        preserved.restore(snapshot).unwrap();
        assert!(!preserved.config.exists() && !preserved.copy.exists());
    }
}
