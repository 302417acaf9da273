//! Builds the archive of one version in process: the parts of `packaging/dist.sh` that an updater needs, without
//! requiring tar or gzip. Used by the demo.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use refit_types::Version;
use refit_update::Profile;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

/// As `packaging/dist.sh` finds them beside itself.
const UNITS: [(&str, &str); 4] = [
    ("refit-update.path", include_str!("../../../packaging/systemd/refit-update.path")),
    ("refit-update.service", include_str!("../../../packaging/systemd/refit-update.service")),
    ("refit-update.timer", include_str!("../../../packaging/systemd/refit-update.timer")),
    ("refit.service", include_str!("../../../packaging/systemd/refit.service")),
];
/// What an archive of that version is called.
pub(crate) fn name(version: &Version) -> String {
    let path = Profile::refit().artifact_url("", crate::EDITION, version);
    path.trim_start_matches('/').to_owned()
}

/// Where the checksum of an archive is.
pub(crate) fn checksum(archive: &Path) -> PathBuf {
    let mut path = archive.as_os_str().to_owned();
    path.push(".sha256");
    path.into()
}

/// Packs an agent as that version and returns the archive; `go_on` is called now and then, and `false` cancels.
pub(crate) fn pack(
    directory: &Path,
    version: &Version,
    agent: &[u8],
    go_on: impl Fn() -> bool,
) -> io::Result<PathBuf> {
    let name = name(version);
    let path = directory.join(&name);
    let out = Summing { file: File::create(&path)?, sum: Sha256::new(), go_on };
    let profile = Profile::refit();
    let top = profile.archive_root.unwrap_or_default();
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::fast()));
    let at = |inner: &str| format!("{top}/{inner}");
    folder(&mut archive, &at(""))?;
    folder(&mut archive, &at("etc/"))?;
    folder(&mut archive, &at("etc/systemd/"))?;
    for (name, text) in UNITS {
        file(&mut archive, &at(&format!("etc/systemd/{name}")), text.as_bytes(), 0o644)?;
    }
    let mut binaries = profile.binaries.iter();
    let program = binaries.next().ok_or_else(|| io::Error::other("there is no program to pack"))?;
    file(&mut archive, &at(program), agent, 0o755)?;
    for link in binaries {
        let mut header = header(EntryType::Symlink, 0, 0o777);
        archive.append_link(&mut header, at(link), program)?;
    }
    let out = archive.into_inner()?.finish()?;
    let sum: String = out.sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    // The checksum last: where it exists, the archive is complete.
    std::fs::write(checksum(&path), format!("{sum}  {name}\n"))?;
    Ok(path)
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn folder(archive: &mut tar::Builder<impl Write>, path: &str) -> io::Result<()> {
    archive.append_data(&mut header(EntryType::Directory, 0, 0o755), path, io::empty())
}

fn file(archive: &mut tar::Builder<impl Write>, path: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    archive.append_data(&mut header(EntryType::Regular, bytes.len() as u64, mode), path, bytes)
}

/// A writer that hashes a file while it is written.
struct Summing<F> {
    file: File,
    sum: Sha256,
    go_on: F,
}

impl<F: Fn() -> bool> Write for Summing<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !(self.go_on)() {
            return Err(io::Error::other("nobody wants the rest"));
        }
        let count = self.file.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
