//! The file of trusted authorities that the agent keeps current for the updater.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use refit_identity::Certificate;
use refit_identity::atomic_file::{self, PUBLIC};

/// The authorities that the agent trusts, in a file, so that the updater can follow a rotation while the
/// agent itself is down or broken.
#[derive(Debug, Clone)]
pub struct TrustFile {
    path: PathBuf,
}

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// A file without authorities would lock the updater out.
    #[error("{path} is kept as it is: the control plane named no authority to trust", path = .0.display())]
    NoAuthority(PathBuf),
    /// The file cannot be written.
    #[error("the trusted authorities cannot be written to {path}: {source}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl TrustFile {
    /// At that path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file hold exactly these, and says whether it had to be written.
    pub fn keep(&self, authorities: &[Certificate]) -> Result<bool, TrustFileError> {
        if authorities.is_empty() {
            return Err(TrustFileError::NoAuthority(self.path.clone()));
        }
        let wanted: String = authorities.iter().map(Certificate::to_pem).collect();
        if fs::read(&self.path).is_ok_and(|found| found == wanted.as_bytes()) {
            return Ok(false);
        }
        let written = atomic_file::replace(&self.path, wanted.as_bytes(), PUBLIC);
        written.map(|()| true).map_err(|source| TrustFileError::File { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use refit_testbed::Certificates;
    use refit_types::DataDir;

    use super::*;

    fn authority() -> Certificate {
        Certificate::from_pem(&fs::read_to_string(Certificates::new().ca()).unwrap()).unwrap()
    }

    #[test]
    fn it_is_written_only_when_the_authorities_change() {
        let directory = tempfile::tempdir().unwrap();
        let file = TrustFile::new(DataDir::new(directory.path()).trust());
        let (old, new) = (authority(), authority());
        assert!(file.keep(std::slice::from_ref(&old)).unwrap());
        let first = fs::metadata(file.path()).unwrap();
        assert_eq!(first.permissions().mode() & 0o777, 0o644);
        assert!(!file.keep(std::slice::from_ref(&old)).unwrap());
        assert_eq!(fs::metadata(file.path()).unwrap().ino(), first.ino());
        assert!(file.keep(&[new.clone(), old.clone()]).unwrap());
        let text = fs::read_to_string(file.path()).unwrap();
        assert_eq!(text, new.to_pem() + &old.to_pem());
        assert_eq!(text.matches("-----BEGIN CERTIFICATE-----\n").count(), 2);
    }

    #[test]
    fn nothing_to_trust_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = TrustFile::new(DataDir::new(directory.path()).trust());
        file.keep(&[authority()]).unwrap();
        let before = fs::read(file.path()).unwrap();
        assert!(matches!(file.keep(&[]), Err(TrustFileError::NoAuthority(_))));
        assert_eq!(fs::read(file.path()).unwrap(), before);
        let nowhere = TrustFile::new(directory.path().join("no/such/trust.pem"));
        assert!(nowhere.keep(&[authority()]).unwrap_err().to_string().contains("no/such/trust.pem"));
    }
}
