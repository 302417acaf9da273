use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use refit_types::Version;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, FileKind, create_dirs_durably, parent, remove_if_present, write_durably};
use crate::layout::Layout;

const COPY: &str = "sqlite.db";
const NOTE: &str = "backup.yaml";

/// `backup.yaml`: what the database beside it is worth. It is written last: without it there is no backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupNote {
    version: String,
    kind: String,
    /// What the backup is of.
    pub spec: BackupSpec,
}

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSpec {
    /// The control plane that the agent belonged to.
    pub proxy: String,
    /// The version whose database it is.
    pub version: Version,
    /// When it was made.
    pub creation_time: Timestamp,
    /// Until when the identity in it is good, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_valid_until: Option<Timestamp>,
    /// Who issued that identity, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_issuer: Option<String>,
    /// Whether the version ever proved that it works: if not, its database is only kept for the way back.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub proved: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_yes(proved: &bool) -> bool {
    *proved
}

/// What is known of the identity in the agent's database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityFacts {
    /// Until when it is good.
    pub valid_until: Option<Timestamp>,
    /// Who issued it.
    pub issuer: Option<String>,
}

/// Why a backup cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// There is none, or it was never finished.
    #[error("there is no complete backup of the database of {0}")]
    Missing(Version),
    /// The note cannot be read.
    #[error("the note of the backup of {version} cannot be read: {error}")]
    Unreadable {
        /// Of which version.
        version: Version,
        /// What is wrong.
        error: String,
    },
    /// It is of something else.
    #[error("the backup is of {what} {found}, not of {wanted}")]
    Mismatch {
        /// A version, or a control plane.
        what: &'static str,
        /// What it is of.
        found: String,
        /// What it should be of.
        wanted: String,
    },
    /// The version never worked.
    #[error("the backup is of {0} when it had never proved that it works")]
    Unproved(Version),
    /// Its identity is over.
    #[error("the identity in the backup of {version} was good until {until} only")]
    Expired {
        /// Of which version.
        version: Version,
        /// Until when.
        until: Timestamp,
    },
    /// Nobody trusts who issued its identity.
    #[error("the identity in the backup of {version} was issued by {issuer}, which is no longer trusted")]
    Untrusted {
        /// Of which version.
        version: Version,
        /// By whom.
        issuer: String,
    },
}

/// What a backup is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreConditions {
    /// The control plane now.
    pub proxy: String,
    /// The time now.
    pub now: Timestamp,
    /// Issuers that are trusted now; none known means that this cannot be told.
    pub trusted: Vec<String>,
}

/// Copies the agent's database beside the version that is being left. What was there is invalid first.
pub fn back_up(disk: &dyn Disk, layout: &Layout, spec: &BackupSpec) -> io::Result<()> {
    let folder = layout.backup(&spec.version);
    let note = folder.join(NOTE);
    create_dirs_durably(disk, &folder, 0o700)?;
    remove_if_present(disk, &note)?;
    disk.sync_dir(&folder)?;
    copy_into(disk, layout, &folder)?;
    let note_of = BackupNote { version: "v1".into(), kind: "db_backup".into(), spec: spec.clone() };
    let text = serde_saphyr::to_string(&note_of).map_err(|error| io::Error::other(error.to_string()))?;
    write_durably(disk, &note, text.as_bytes(), 0o600)
}

/// Copies the database that was there before anything was installed: an agent of some other installation's.
pub(crate) fn back_up_foreign(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    let folder = layout.first_backup();
    create_dirs_durably(disk, &folder, 0o700)?;
    copy_into(disk, layout, &folder)
}

fn copy_into(disk: &dyn Disk, layout: &Layout, folder: &Path) -> io::Result<()> {
    let aside = folder.join("sqlite.db.new");
    remove_database(disk, &aside)?;
    disk.back_up_database(&layout.database(), &aside)?;
    disk.sync_file(&aside)?;
    disk.rename(&aside, &folder.join(COPY))?;
    disk.sync_dir(folder)
}

/// The backup of a version, if it can be restored under these conditions.
pub fn check_backup(
    disk: &dyn Disk,
    layout: &Layout,
    version: &Version,
    conditions: &RestoreConditions,
) -> Result<BackupSpec, BackupError> {
    let folder = layout.backup(version);
    let missing = || BackupError::Missing(version.clone());
    let unreadable = |error: String| BackupError::Unreadable { version: version.clone(), error };
    let bytes = disk.read(&folder.join(NOTE)).map_err(|_| missing())?;
    if !matches!(disk.kind(&folder.join(COPY)), Ok(Some(FileKind::File { .. }))) {
        return Err(missing());
    }
    let text = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
    let note: BackupNote = serde_saphyr::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    judge(note.spec, version, conditions)
}

fn judge(
    spec: BackupSpec,
    version: &Version,
    conditions: &RestoreConditions,
) -> Result<BackupSpec, BackupError> {
    if spec.version != *version {
        let (found, wanted) = (spec.version.to_string(), version.to_string());
        return Err(BackupError::Mismatch { what: "version", found, wanted });
    }
    if spec.proxy != conditions.proxy {
        let (found, wanted) = (spec.proxy, conditions.proxy.clone());
        return Err(BackupError::Mismatch { what: "the control plane", found, wanted });
    }
    if !spec.proved {
        return Err(BackupError::Unproved(version.clone()));
    }
    if let Some(until) = spec.identity_valid_until.filter(|until| *until <= conditions.now) {
        return Err(BackupError::Expired { version: version.clone(), until });
    }
    match &spec.identity_issuer {
        Some(issuer) if !conditions.trusted.is_empty() && !conditions.trusted.contains(issuer) => {
            Err(BackupError::Untrusted { version: version.clone(), issuer: issuer.clone() })
        }
        _ => Ok(spec),
    }
}

/// Copies the backup of a version to where only a rename is left to do: while the agent still runs, because the copy
/// is what takes time and room.
pub fn prepare_restore(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<()> {
    let aside = prepared(layout);
    remove_database(disk, &aside)?;
    disk.back_up_database(&layout.backup(version).join(COPY), &aside)?;
    disk.sync_file(&aside)
}

/// Puts what was prepared in the place of the agent's database. The agent must be fully stopped.
pub fn restore(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    put_in_place(disk, layout, &prepared(layout))
}

/// Gives back the database that was copied when a switch began. The copy itself takes its place, so that a full disk
/// cannot stand in the way; it is worth nothing afterwards. To be called again after a cut. The agent must be fully
/// stopped.
pub(crate) fn roll_back_database(disk: &dyn Disk, layout: &Layout, folder: &Path) -> io::Result<()> {
    let copy = folder.join(COPY);
    if disk.kind(&copy)?.is_some() {
        match put_in_place(disk, layout, &copy) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let aside = prepared(layout);
                remove_database(disk, &aside)?;
                disk.back_up_database(&copy, &aside)?;
                disk.sync_file(&aside)?;
                put_in_place(disk, layout, &aside)?;
                disk.remove_file(&copy)?;
            }
            other => other?,
        }
        disk.sync_dir(folder)?;
    }
    remove_if_present(disk, &folder.join(NOTE))?;
    remove_database(disk, &prepared(layout))
}

fn put_in_place(disk: &dyn Disk, layout: &Layout, copy: &Path) -> io::Result<()> {
    let database = layout.database();
    // A log of the old database must not be taken for one of the new.
    for log in ["-wal", "-shm", "-journal"] {
        remove_if_present(disk, &beside(&database, log))?;
    }
    disk.sync_dir(parent(&database))?;
    disk.rename(copy, &database)?;
    disk.sync_dir(parent(&database))
}

fn prepared(layout: &Layout) -> PathBuf {
    beside(&layout.database(), ".new")
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_database(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        remove_if_present(disk, &beside(path, suffix))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, RealDisk};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn spec() -> BackupSpec {
        BackupSpec {
            proxy: "refit.example.com:3080".into(),
            version: "15.1.0".parse().unwrap(),
            creation_time: at("2026-01-01T00:00:00Z"),
            identity_valid_until: Some(at("2026-02-01T00:00:00Z")),
            identity_issuer: Some("sha256:aa".into()),
            proved: true,
        }
    }

    fn now() -> RestoreConditions {
        RestoreConditions {
            proxy: "refit.example.com:3080".into(),
            now: at("2026-01-02T00:00:00Z"),
            trusted: vec!["sha256:aa".into()],
        }
    }

    fn rows(path: &Path) -> Vec<String> {
        let database = rusqlite::Connection::open(path).unwrap();
        let mut query = database.prepare("SELECT name FROM things ORDER BY name").unwrap();
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_backup_is_taken_from_a_database_in_use_and_comes_back_whole() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path(), &Profile::refit(), None);
        std::fs::create_dir_all(layout.database().parent().unwrap()).unwrap();
        let open = rusqlite::Connection::open(layout.database()).unwrap();
        open.pragma_update(None, "journal_mode", "WAL").unwrap();
        open.execute_batch("CREATE TABLE things (name TEXT); INSERT INTO things VALUES ('old')").unwrap();
        back_up(&RealDisk, &layout, &spec()).unwrap();
        open.execute_batch("INSERT INTO things VALUES ('new')").unwrap();
        assert_eq!(check_backup(&RealDisk, &layout, &spec().version, &now()).unwrap(), spec());
        drop(open);
        assert_eq!(rows(&layout.database()), ["new", "old"]);
        std::fs::write(beside(&layout.database(), "-wal"), "a log of the old one").unwrap();
        prepare_restore(&RealDisk, &layout, &spec().version).unwrap();
        restore(&RealDisk, &layout).unwrap();
        assert_eq!(rows(&layout.database()), ["old"]);
        assert_eq!(rows(&layout.backup(&spec().version).join("sqlite.db")), ["old"], "it can be used again");
    }

    #[test]
    fn half_foreign_old_and_distrusted_backups_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path(), &Profile::refit(), None);
        let (version, folder) = (spec().version, layout.backup(&spec().version));
        let refused = |now: &RestoreConditions| {
            check_backup(&RealDisk, &layout, &version, now).unwrap_err().to_string()
        };
        assert_eq!(refused(&now()), "there is no complete backup of the database of 15.1.0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("backup.yaml"), "spec: [").unwrap();
        assert!(refused(&now()).contains("no complete backup"), "the database is not there");
        std::fs::write(folder.join("sqlite.db"), "").unwrap();
        assert!(refused(&now()).contains("cannot be read"));
        let judged =
            |spec: BackupSpec, now: &RestoreConditions| judge(spec, &version, now).unwrap_err().to_string();
        let other = BackupSpec { version: "15.0.0".parse().unwrap(), ..spec() };
        assert!(judged(other, &now()).contains("is of version 15.0.0, not of 15.1.0"));
        let other = BackupSpec { proxy: "elsewhere:3080".into(), ..spec() };
        assert!(judged(other, &now()).contains("the control plane elsewhere:3080"));
        let unproved = BackupSpec { proved: false, ..spec() };
        assert!(judged(unproved, &now()).contains("never proved"));
        let late = RestoreConditions { now: at("2026-02-01T00:00:00Z"), ..now() };
        assert!(judged(spec(), &late).contains("was good until"));
        let rotated = RestoreConditions { trusted: vec!["sha256:bb".into()], ..now() };
        assert!(judged(spec(), &rotated).contains("no longer trusted"));
        assert!(judge(spec(), &version, &RestoreConditions { trusted: Vec::new(), ..now() }).is_ok());
    }
}
