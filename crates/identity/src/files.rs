use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::{Error, Result};

const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Writes a file that only its owner can read, whole or not at all, even through a power cut.
///
/// It is written aside in the same directory and renamed, so it replaces what was there (also a link,
/// not the link's target).
pub fn write_private_file(path: &Path, contents: &[u8]) -> Result<()> {
    write(path, contents).map_err(|source| Error::File { path: path.into(), action: "written", source })
}

fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut aside = tempfile::Builder::new().prefix(".refit-").suffix(".tmp").tempfile_in(directory)?;
    aside.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
    aside.write_all(contents)?;
    aside.as_file().sync_all()?;
    aside.persist(path).map_err(|refused| refused.error)?;
    File::open(directory)?.sync_all()
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
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_private_file_is_private_and_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let old = File::open(&path).unwrap();

        write_private_file(&path, b"new").unwrap();

        assert_eq!(read_private_file(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let mut still = String::new();
        (&old).read_to_string(&mut still).unwrap();
        assert_eq!(still, "old", "the old file itself must not be written to");
        assert_eq!(names(directory.path()), ["secret"]);
    }

    #[test]
    fn a_failed_write_leaves_everything_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_private_file(&taken, b"new").unwrap_err().to_string();
        assert!(error.contains("taken cannot be written"), "{error}");
        assert_eq!(names(directory.path()), ["taken"]);
        assert!(write_private_file(&directory.path().join("no/such"), b"new").is_err());
        assert!(write_private_file(Path::new("/"), b"new").is_err());
        assert!(write_private_file(Path::new(""), b"new").is_err());
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
