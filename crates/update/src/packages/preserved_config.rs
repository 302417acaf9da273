//! The configuration, preserved through a purge that may delete or change it, and through a cut in the middle.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::disk::{RealDisk, create_dirs_durably, parent};

/// More than a person writes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A file, and where its copy is while it is in danger.
#[derive(Debug, Clone)]
pub(super) struct PreservedConfig {
    config: PathBuf,
    copy: PathBuf,
}

/// All of a file that matters.
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

    /// Makes the copy, if there is anything to copy. When this returns, it survives a power cut.
    pub(super) fn save_copy(&self) -> io::Result<Option<FileSnapshot>> {
        let Some(snapshot) = read(&self.config)? else { return Ok(None) };
        create_dirs_durably(&RealDisk, parent(&self.copy), 0o755)?;
        write(&self.copy, &snapshot)?;
        Ok(Some(snapshot))
    }

    /// The configuration is as it was when this returns, whatever became of the copy; and then that goes.
    pub(super) fn restore(&self, preserved: Option<FileSnapshot>) -> io::Result<()> {
        let Some(snapshot) = preserved else { return Ok(()) };
        if read(&self.config)?.as_ref() != Some(&snapshot) {
            write(&self.config, &snapshot)?;
        }
        remove(&self.copy)
    }

    /// Finishes what was cut off. A configuration that is there stays: nobody has_package whether it was the purge that
    /// made it differ. The copy of such a one is put aside.
    pub(super) fn finish_interrupted(&self) -> io::Result<()> {
        let Some(snapshot) = read(&self.copy)? else { return Ok(()) };
        match read(&self.config)? {
            None => {
                tracing::warn!("a purge was cut off: puts {} back", self.config.display());
                write(&self.config, &snapshot)?;
            }
            Some(found) if found != snapshot => {
                let aside = with_suffix(&self.copy, ".old");
                fs::rename(&self.copy, &aside)?;
                let (config, aside) = (self.config.display(), aside.display());
                tracing::warn!(
                    "a purge was cut off, and {config} has changed since it began: as it was is {aside}"
                );
                return sync(parent(&self.copy));
            }
            Some(_) => {}
        }
        remove(&self.copy)
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

/// It is there snapshot or not at all, and never readable by more than may read it in the end.
fn write(path: &Path, snapshot: &FileSnapshot) -> io::Result<()> {
    create_dirs_durably(&RealDisk, parent(path), 0o755)?;
    let new = with_suffix(path, ".new");
    remove_file(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&snapshot.bytes)?;
    let (user, group) = snapshot.owner;
    fchown(&file, Some(user), Some(group))?;
    file.set_permissions(Permissions::from_mode(snapshot.mode))?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    sync(parent(path))
}

fn remove(path: &Path) -> io::Result<()> {
    remove_file(path)?;
    match sync(parent(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
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
    fn what_a_cut_left_is_finished() {
        let (_folder, preserved) = preserved();
        preserved.finish_interrupted().unwrap();
        assert_eq!(current(&preserved), ("changed by hand".into(), 0o640), "nothing was cut");

        preserved.save_copy().unwrap();
        fs::remove_file(&preserved.config).unwrap();
        // A cut while it was put back: half of it is aside.
        fs::write(with_suffix(&preserved.config, ".new"), "chang").unwrap();
        preserved.finish_interrupted().unwrap();
        assert_eq!(current(&preserved), ("changed by hand".into(), 0o640));
        assert!(!preserved.copy.exists());

        preserved.save_copy().unwrap();
        preserved.finish_interrupted().unwrap();
        assert!(!preserved.copy.exists(), "a cut before anything was removed");

        preserved.save_copy().unwrap();
        fs::write(&preserved.config, "edited after the cut").unwrap();
        preserved.finish_interrupted().unwrap();
        assert_eq!(current(&preserved).0, "edited after the cut");
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
