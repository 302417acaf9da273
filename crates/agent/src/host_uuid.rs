//! The file with the host's UUID, created once and never replaced.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use refit_identity::atomic_file::{self, PUBLIC, directory_of};
use refit_types::HostId;
use uuid::Uuid;

/// Why the UUID of the host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostUuidError {
    /// The file holds something else.
    #[error(
        "{path} does not hold a host UUID ({problem}): write the UUID that this host had into it \
         (`refitctl nodes ls` lists them), or delete the file to join as a new host", path = .path.display()
    )]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What it holds.
        problem: String,
    },
    /// The file cannot be read or written.
    #[error("the host UUID in {path} cannot be {action}: {source}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// The UUID that this host goes by; drawn once and on disk before it is first sent, because the
/// control plane knows a host by nothing else.
///
/// A file that cannot be understood is left as it is: a new UUID over it would make another host.
pub fn read_or_create_host_uuid(path: &Path, draw: impl FnOnce() -> Uuid) -> Result<HostId, HostUuidError> {
    let failed = |action| move |source| HostUuidError::File { path: path.into(), action, source };
    if let Some(found) = read(path)? {
        return Ok(found);
    }
    let drawn = HostId::new(draw());
    fs::create_dir_all(directory_of(path)).map_err(failed("written"))?;
    match atomic_file::create(path, format!("{drawn}\n").as_bytes(), PUBLIC) {
        Ok(()) => Ok(drawn),
        // Another process was first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(path)?.ok_or(error).map_err(failed("read"))
        }
        Err(error) => Err(failed("written")(error)),
    }
}

fn read(path: &Path) -> Result<Option<HostId>, HostUuidError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(HostUuidError::File { path: path.into(), action: "read", source }),
    };
    let text = String::from_utf8_lossy(&bytes);
    let parsed = match text.trim() {
        "" => Err("it is empty".to_owned()),
        text => text.parse().map_err(|error: refit_types::NotAHostId| error.to_string()),
    };
    parsed.map(Some).map_err(|problem| HostUuidError::Invalid { path: path.into(), problem })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use refit_types::DataDir;

    use super::*;

    const KNOWN: Uuid = Uuid::from_u128(7);

    #[test]
    fn the_first_draw_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = DataDir::new(directory.path().join("new")).host_uuid();
        let first = read_or_create_host_uuid(&path, || KNOWN).unwrap();
        assert_eq!(first, HostId::new(KNOWN));
        assert_eq!(fs::read_to_string(&path).unwrap(), "00000000-0000-0000-0000-000000000007\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let again = read_or_create_host_uuid(&path, || panic!("drawn twice")).unwrap();
        assert_eq!(again, first);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn of_two_that_draw_at_once_one_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = DataDir::new(directory.path()).host_uuid();
        let late = read_or_create_host_uuid(&path, || {
            read_or_create_host_uuid(&path, || KNOWN).unwrap();
            Uuid::from_u128(8)
        });
        assert_eq!(late.unwrap(), HostId::new(KNOWN));
    }

    #[test]
    fn an_invalid_file_is_told_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = DataDir::new(directory.path()).host_uuid();
        for invalid in
            [&b""[..], b"\n", b"00000000-0000", b"\xff\xfe", b"0000000000000000000000000000000000007"]
        {
            fs::write(&path, invalid).unwrap();
            let error = read_or_create_host_uuid(&path, || KNOWN).unwrap_err().to_string();
            assert!(error.contains("host_uuid does not hold a host UUID"), "{error}");
            assert!(error.contains("delete the file"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), invalid);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = read_or_create_host_uuid(&path, || KNOWN).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
    }
}
