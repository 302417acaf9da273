//! Files that hold private keys: written for their owner alone, and refused when others can read them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::{Error, Result, atomic_file};

const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Writes a file that only its owner can read, whole or not at all.
pub fn write_private_file(path: &Path, contents: &[u8]) -> Result<()> {
    let written = atomic_file::replace(path, contents, atomic_file::PRIVATE);
    written.map_err(|source| Error::File { path: path.into(), action: "written", source })
}

/// Reads a file that only its owner can read, and refuses it when others can too, as ssh does.
pub(crate) fn read_private_file(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| Error::File { path: path.into(), action: "read", source };
    let file = File::open(path).map_err(failed)?;
    // Asked of the open file, so that it cannot be another one than is read.
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(Error::Exposed { path: path.into(), mode });
    }
    let mut contents = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut contents).map_err(failed)?;
    Ok(contents)
}

/// The path as one word of a shell's command line.
pub(crate) fn for_shell(path: &Path) -> String {
    let path = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%:,".contains(c);
    if !path.is_empty() && !path.starts_with('-') && path.chars().all(plain) {
        return path.into_owned();
    }
    let word = format!("'{}'", path.replace('\'', r"'\''"));
    if path.starts_with('-') { format!("-- {word}") } else { word }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_written_file_is_private_and_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write_private_file(&path, b"new").unwrap();
        assert_eq!(read_private_file(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);

        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_private_file(&taken, b"new").unwrap_err().to_string();
        assert!(error.contains("taken cannot be written"), "{error}");
    }

    #[test]
    fn an_exposed_file_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my identity");
        for mode in [0o640, 0o604, 0o601, 0o620] {
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read_private_file(&path).unwrap_err().to_string();
            assert!(error.ends_with(&format!("run: chmod 600 '{}'", path.display())), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        read_private_file(&path).unwrap();
    }

    #[test]
    fn shell_words() {
        for (path, word) in [
            ("/a/b-c.d", "/a/b-c.d"),
            ("a b", "'a b'"),
            ("a'b", r"'a'\''b'"),
            ("-rf", "-- '-rf'"),
            ("$(x)", "'$(x)'"),
        ] {
            assert_eq!(for_shell(Path::new(path)), word);
        }
    }
}
