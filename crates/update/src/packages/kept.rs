//! The configuration, kept through a purge that may delete or change it, and through a cut in the middle.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::disk::{RealDisk, create_dirs_durably, parent};

/// More than a person writes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A file, and where its copy is while it is in danger.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    config: PathBuf,
    copy: PathBuf,
}

/// All of a file that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
}

impl Kept {
    pub(super) fn new(config: &Path, copy: &Path) -> Self {
        Self { config: config.to_owned(), copy: copy.to_owned() }
    }

    pub(super) fn copy(&self) -> &Path {
        &self.copy
    }

    /// Makes the copy, if there is anything to copy. When this returns, it survives a power cut.
    pub(super) fn take(&self) -> io::Result<Option<Whole>> {
        let Some(whole) = read(&self.config)? else { return Ok(None) };
        create_dirs_durably(&RealDisk, parent(&self.copy), 0o755)?;
        write(&self.copy, &whole)?;
        Ok(Some(whole))
    }

    /// The configuration is as it was when this returns, whatever became of the copy; and then that goes.
    pub(super) fn put_back(&self, kept: Option<Whole>) -> io::Result<()> {
        let Some(whole) = kept else { return Ok(()) };
        if read(&self.config)?.as_ref() != Some(&whole) {
            write(&self.config, &whole)?;
        }
        remove(&self.copy)
    }

    /// Finishes what was cut off. A configuration that is there stays: nobody knows whether it was the purge that
    /// made it differ. The copy of such a one is put aside.
    pub(super) fn settle(&self) -> io::Result<()> {
        let Some(whole) = read(&self.copy)? else { return Ok(()) };
        match read(&self.config)? {
            None => {
                tracing::warn!("a purge was cut off: puts {} back", self.config.display());
                write(&self.config, &whole)?;
            }
            Some(found) if found != whole => {
                let aside = named(&self.copy, ".old");
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

fn named(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn read(path: &Path) -> io::Result<Option<Whole>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return Err(io::Error::other(format!("{} is not a file that can be kept", path.display())));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(Whole { bytes, mode: found.mode() & 0o7777, owner: (found.uid(), found.gid()) }))
}

/// It is there whole or not at all, and never readable by more than may read it in the end.
fn write(path: &Path, whole: &Whole) -> io::Result<()> {
    create_dirs_durably(&RealDisk, parent(path), 0o755)?;
    let new = named(path, ".new");
    remove_file(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&whole.bytes)?;
    let (user, group) = whole.owner;
    fchown(&file, Some(user), Some(group))?;
    file.set_permissions(Permissions::from_mode(whole.mode))?;
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

    fn kept() -> (TempDir, Kept) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("etc")).unwrap();
        fs::write(at("etc/refit.yaml"), "changed by hand").unwrap();
        fs::set_permissions(at("etc/refit.yaml"), Permissions::from_mode(0o640)).unwrap();
        let kept = Kept::new(&at("etc/refit.yaml"), &at("data/versions/kept"));
        (folder, kept)
    }

    fn there(kept: &Kept) -> (String, u32) {
        let mode = fs::metadata(&kept.config).unwrap().mode() & 0o7777;
        (fs::read_to_string(&kept.config).unwrap(), mode)
    }

    #[test]
    fn what_a_purge_deletes_or_changes_is_put_back() {
        let changes: [fn(&Kept); 5] = [
            |_| {},
            |kept| fs::remove_file(&kept.config).unwrap(),
            |kept| fs::write(&kept.config, "default").unwrap(),
            |kept| fs::set_permissions(&kept.config, Permissions::from_mode(0o644)).unwrap(),
            |kept| {
                fs::remove_dir_all(parent(&kept.config)).unwrap();
                fs::remove_dir_all(parent(&kept.copy)).unwrap();
            },
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let (_folder, kept) = kept();
            let whole = kept.take().unwrap();
            assert_eq!(read(&kept.copy).unwrap(), whole);
            change(&kept);
            kept.put_back(whole).unwrap();
            assert_eq!(there(&kept), ("changed by hand".into(), 0o640), "{n}");
            assert!(!kept.copy.exists() && !named(&kept.config, ".new").exists(), "{n}");
        }
    }

    #[test]
    fn what_a_cut_left_is_finished() {
        let (_folder, kept) = kept();
        kept.settle().unwrap();
        assert_eq!(there(&kept), ("changed by hand".into(), 0o640), "nothing was cut");

        kept.take().unwrap();
        fs::remove_file(&kept.config).unwrap();
        // A cut while it was put back: half of it is aside.
        fs::write(named(&kept.config, ".new"), "chang").unwrap();
        kept.settle().unwrap();
        assert_eq!(there(&kept), ("changed by hand".into(), 0o640));
        assert!(!kept.copy.exists());

        kept.take().unwrap();
        kept.settle().unwrap();
        assert!(!kept.copy.exists(), "a cut before anything was removed");

        kept.take().unwrap();
        fs::write(&kept.config, "edited after the cut").unwrap();
        kept.settle().unwrap();
        assert_eq!(there(&kept).0, "edited after the cut");
        assert_eq!(fs::read_to_string(named(&kept.copy, ".old")).unwrap(), "changed by hand");
        assert!(!kept.copy.exists());
    }

    #[test]
    fn what_is_not_there_is_not_made() {
        let (_folder, kept) = kept();
        fs::remove_file(&kept.config).unwrap();
        let whole = kept.take().unwrap();
        assert_eq!(whole, None);
        kept.put_back(whole).unwrap();
        assert!(!kept.config.exists() && !kept.copy.exists());
    }
}
