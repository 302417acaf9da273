//! Resolves the path of a request to a file inside the artifacts directory. The only code that opens files there.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// The kernel refuses to resolve a path during a concurrent rename; each round retries after one.
const MOST_ROUNDS: usize = 32;

/// Decodes the rest of an address once. None for hidden files, `..` and directories.
pub(super) fn path(encoded: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in encoded.split('/') {
        let part: Vec<u8> = percent_decode_str(part).collect();
        if part.is_empty() || part[0] == b'.' || part.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return None;
        }
        path.push(OsStr::from_bytes(&part));
    }
    Some(path)
}

/// Opens a regular file of the directory, if there is one. The kernel follows links only inside the directory.
pub(super) fn open(directory: &Path, path: &Path) -> io::Result<Option<(File, Metadata)>> {
    match try_open(directory, path) {
        Ok(file) => {
            let file = File::from(file);
            let metadata = file.metadata()?;
            Ok(metadata.is_file().then_some((file, metadata)))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO) => {
            Ok(None)
        }
        Err(Errno::NOSYS) => Err(io::Error::new(io::ErrorKind::Unsupported, "this needs Linux 5.6 or newer")),
        Err(error) => Err(error.into()),
    }
}

fn try_open(directory: &Path, path: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let directory =
        openat(CWD, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Non-blocking, because opening a pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..MOST_ROUNDS {
        opened = openat2(&directory, path, flags, Mode::empty(), inside);
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_decoded_once_and_never_climb() {
        let of = |encoded: &str| path(encoded).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(of("a.tar.gz").as_deref(), Some("a.tar.gz"));
        assert_eq!(of("mirror/a%2Btest~1.tar.gz").as_deref(), Some("mirror/a+test~1.tar.gz"));
        assert_eq!(of("a%252e").as_deref(), Some("a%2e"), "once");
        for nothing in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/./b",
            ".hidden",
            "a/.hidden",
            "%2e%2e/a",
            "%2e%2e%2fa",
            "a%2fb",
            "a%00b",
            ".%2e/a",
            "%2E%2E/%2E%2E/etc/passwd",
            "%2fetc/passwd",
        ] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }
}
