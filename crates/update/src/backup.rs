//! The backup of the agent's database: made when a version is left, checked and restored when it is active again, and
//! renamed back by a rollback. Called by `switch` and `rollback`.

use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use refit_types::Version;
use serde::{Deserialize, Serialize};

use crate::disk::{
    Disk, FileKind, create_dirs_durably, parent, remove_durably, remove_if_present, temporary, write_durably,
};
use crate::layout::Layout;

const COPY: &str = "sqlite.db";
const NOTE: &str = "backup.yaml";

/// `backup.yaml`: describes the database beside it. It is written last: without it there is no backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupNote {
    version: String,
    kind: String,
    /// The description.
    pub spec: BackupSpec,
}

/// The description of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSpec {
    /// The control plane that the agent belonged to.
    pub proxy: String,
    /// The version whose database it is.
    pub version: Version,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When the identity in it expires, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_valid_until: Option<Timestamp>,
    /// The issuer of that identity, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_issuer: Option<String>,
    /// Whether the version has ever been healthy; if not, the backup is only good for a rollback.
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

/// The identity in the agent's database, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentityFacts {
    /// When it expires.
    pub valid_until: Option<Timestamp>,
    /// Its issuer.
    pub issuer: Option<String>,
}

/// Why a backup cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// There is none, or it is incomplete.
    #[error("there is no complete backup of the database of {0}")]
    Missing(Version),
    /// Its description cannot be read.
    #[error("the note of the backup of {version} cannot be read: {error}")]
    Unreadable {
        /// The version.
        version: Version,
        /// The error.
        error: String,
    },
    /// It is of another version or another control plane.
    #[error("the backup is of {what} {found}, not of {wanted}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// The value in the backup.
        found: String,
        /// The value now.
        wanted: String,
    },
    /// The version has never been healthy.
    #[error("the backup is of {0} when it had never proved that it works")]
    Unproved(Version),
    /// Nothing is known of its identity, and it is older than any identity lives.
    #[error(
        "the backup of {version} was made at {created}, and an identity lives for {lifetime:#}: whether the one in it \
         is still good is not known"
    )]
    TooOld {
        /// The version.
        version: Version,
        /// When it was made.
        created: Timestamp,
        /// How long the identities of this agent live.
        lifetime: SignedDuration,
    },
    /// Its identity has expired.
    #[error("the identity in the backup of {version} was good until {until} only")]
    Expired {
        /// The version.
        version: Version,
        /// When it expired.
        until: Timestamp,
    },
    /// The issuer of its identity is no longer trusted.
    #[error("the identity in the backup of {version} was issued by {issuer}, which is no longer trusted")]
    Untrusted {
        /// The version.
        version: Version,
        /// The issuer.
        issuer: String,
    },
}

/// What a backup is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreConditions {
    /// The control plane now.
    pub proxy: String,
    /// The time now.
    pub now: Timestamp,
    /// Issuers that are trusted now; if none are known, issuers are not checked.
    pub trusted: Vec<String>,
    /// How long an identity of this agent lives: a backup that does not say until when its own is valid must be
    /// younger.
    pub identity_lifetime: SignedDuration,
}

/// Backs up the agent's database into the directory of the version that is left. An older backup is made invalid first.
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

/// Backs up the database of another installation of the agent, before a first installation.
pub(crate) fn back_up_foreign(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    let folder = layout.first_backup();
    create_dirs_durably(disk, &folder, 0o700)?;
    copy_into(disk, layout, &folder)
}

fn copy_into(disk: &dyn Disk, layout: &Layout, folder: &Path) -> io::Result<()> {
    let temporary = folder.join("sqlite.db.new");
    remove_database(disk, &temporary)?;
    disk.back_up_database(&layout.database(), &temporary)?;
    disk.sync_file(&temporary)?;
    disk.rename(&temporary, &folder.join(COPY))?;
    disk.sync_dir(folder)
}

/// The description of a version's backup, if that can be restored.
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
    match spec.identity_valid_until {
        Some(until) if until <= conditions.now => {
            return Err(BackupError::Expired { version: version.clone(), until });
        }
        Some(_) => {}
        None => {
            let (created, lifetime) = (spec.creation_time, conditions.identity_lifetime);
            // One from the future was made by another clock, and says as little.
            if conditions.now.duration_since(created).abs() >= lifetime {
                return Err(BackupError::TooOld { version: version.clone(), created, lifetime });
            }
        }
    }
    match &spec.identity_issuer {
        Some(issuer) if !conditions.trusted.is_empty() && !conditions.trusted.contains(issuer) => {
            Err(BackupError::Untrusted { version: version.clone(), issuer: issuer.clone() })
        }
        _ => Ok(spec),
    }
}

/// Copies the backup of a version beside the database, so that only a rename is left to do. Called while the agent still
/// runs, because the copy takes time and room.
pub fn prepare_restore(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<()> {
    let temporary = prepared(layout);
    remove_database(disk, &temporary)?;
    disk.back_up_database(&layout.backup(version).join(COPY), &temporary)?;
    disk.sync_file(&temporary)
}

/// Replaces the agent's database by the copy that was prepared. The agent must be fully stopped.
pub fn restore(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    put_in_place(disk, layout, &prepared(layout))
}

/// Restores the database that was backed up when a switch began. The backup itself is renamed into place, so that this
/// works on a full disk, and no longer exists afterwards. Can be repeated after an interruption. The agent must be fully
/// stopped.
pub(crate) fn roll_back_database(disk: &dyn Disk, layout: &Layout, folder: &Path) -> io::Result<()> {
    let copy = folder.join(COPY);
    if disk.kind(&copy)?.is_some() {
        match put_in_place(disk, layout, &copy) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let temporary = prepared(layout);
                remove_database(disk, &temporary)?;
                disk.back_up_database(&copy, &temporary)?;
                disk.sync_file(&temporary)?;
                put_in_place(disk, layout, &temporary)?;
                disk.remove_file(&copy)?;
            }
            other => other?,
        }
        disk.sync_dir(folder)?;
    }
    remove_durably(disk, &folder.join(NOTE))?;
    remove_database(disk, &prepared(layout))
}

fn put_in_place(disk: &dyn Disk, layout: &Layout, copy: &Path) -> io::Result<()> {
    let database = layout.database();
    // SQLite would apply a log of the old database to the new one.
    for log in ["-wal", "-shm", "-journal"] {
        remove_if_present(disk, &beside(&database, log))?;
    }
    disk.sync_dir(parent(&database))?;
    disk.rename(copy, &database)?;
    disk.sync_dir(parent(&database))
}

/// Removes copies of a database that were never finished or never put in place.
pub(crate) fn remove_unfinished(disk: &dyn Disk, layout: &Layout, version: &Version) -> io::Result<()> {
    let copy = layout.backup(version).join("sqlite.db.new");
    for unfinished in [copy, prepared(layout)] {
        for path in database_files(&unfinished) {
            remove_durably(disk, &path)?;
        }
    }
    remove_durably(disk, &temporary(&layout.backup(version).join(NOTE)))
}

fn database_files(path: &Path) -> [PathBuf; 4] {
    ["", "-journal", "-wal", "-shm"].map(|suffix| beside(path, suffix))
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
    database_files(path).iter().try_for_each(|path| remove_if_present(disk, path))
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
            identity_lifetime: SignedDuration::from_hours(720),
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

    #[test]
    fn a_backup_of_an_unknown_identity_must_be_younger_than_identities_live() {
        let unknown = BackupSpec { identity_valid_until: None, ..spec() };
        let judged = |created: &str| {
            let spec = BackupSpec { creation_time: at(created), ..unknown.clone() };
            judge(spec, &unknown.version, &now()).map_err(|error| error.to_string())
        };
        for good in ["2026-01-01T00:00:00Z", "2025-12-03T00:00:01Z", "2026-01-31T00:00:00Z"] {
            assert!(judged(good).is_ok(), "{good}");
        }
        for old in ["2025-12-03T00:00:00Z", "2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
            let told = format!(
                "the backup of 15.1.0 was made at {old}, and an identity lives for 720h: whether the one in it is still \
                 good is not known"
            );
            assert_eq!(judged(old), Err(told));
        }
        let known = BackupSpec { creation_time: at("2001-01-01T00:00:00Z"), ..spec() };
        assert!(judge(known, &spec().version, &now()).is_ok(), "its own end counts where it is known");
    }
}
