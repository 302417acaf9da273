//! The installation of a version: from its address to a complete directory, or nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

use flate2::bufread::GzDecoder;
use refit_types::Version;

use super::checksum;
use super::pipe::{PipeReader, pipe};
use super::resume::MAX_TRIES;
use super::source::redacted;
use super::space::{DiskSpace, MAX_UNPACKED, UnpackedSize};
use super::tar_reader::TarReader;
use super::unpack::Unpacker;
use super::{
    ArchiveError, Interrupt, Patience, Progress, ResumingReader, Source, SourceError, SourceErrorKind,
    TransferLimits,
};
use crate::{Disk, Layout, Profile, create_dirs_durably, write_durably};

/// The end of the name of a version's directory while it is unpacked.
pub(crate) const PART: &str = ".part";

/// A version that is complete on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its directory.
    pub directory: PathBuf,
    /// The SHA-256 of its archive.
    pub sha256: String,
    /// Whether it was complete before, and nothing was done.
    pub already: bool,
}

/// Why a version was not installed; nothing of it is left on the disk.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The archive or its checksum could not be downloaded.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The checksum file is invalid.
    #[error("{url} is not a SHA-256 as sha256sum writes it: nothing can be checked, so nothing is installed")]
    ChecksumFile {
        /// Its address.
        url: String,
    },
    /// The checksum file is of another file.
    #[error(
        "{url} is the checksum of {named:?}, which is another file: it is not used; publish the archive's own"
    )]
    OtherFile {
        /// Its address.
        url: String,
        /// The file that it names.
        named: String,
    },
    /// The archive does not match its checksum.
    #[error(
        "{url} has the SHA-256 {found}, and {url}.sha256 says {expected}: it is not installed; publish both again"
    )]
    Mismatch {
        /// Its address.
        url: String,
        /// The published checksum.
        expected: String,
        /// The checksum of the archive.
        found: String,
    },
    /// The archive is corrupt, hostile, or not of this profile.
    #[error("the archive {url} is refused: {error}")]
    Archive {
        /// Its address.
        url: String,
        /// The error.
        error: ArchiveError,
    },
    /// The disk is too small.
    #[error("{needed} bytes are needed on the file system of {at}, with what must stay free, and {free} are free: make room there", at = .at.display())]
    NoSpace {
        /// Where it would be written.
        at: PathBuf,
        /// Bytes that are still needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The profile names a file outside of the version's directory.
    #[error("the profile {profile} names {name:?}, which is not the name of a file: correct the profile")]
    Name {
        /// The profile.
        profile: String,
        /// The name.
        name: String,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}: {error}", path = .path.display())]
    Disk {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl InstallError {
    pub(super) fn on(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Disk { what, path, error }
    }

    /// Whether a person's command ended the download.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Source(error) if error.kind == SourceErrorKind::Stopped)
    }

    /// Whether another mirror may do better.
    fn is_of_the_mirror(&self) -> bool {
        match self {
            Self::Source(_) => !self.is_stopped(),
            Self::ChecksumFile { .. } | Self::OtherFile { .. } => true,
            Self::Mismatch { .. } | Self::Archive { .. } => true,
            Self::NoSpace { .. } | Self::Name { .. } | Self::Disk { .. } => false,
        }
    }
}

/// Where an archive comes from, and how long it may take.
#[derive(Clone, Copy)]
pub struct Download<'a> {
    /// The network.
    pub source: &'a dyn Source,
    /// The addresses of the archive, tried in this order.
    pub urls: &'a [String],
    /// How slow and how long it may be.
    pub limits: &'a TransferLimits,
    /// Whether a person waits for the host.
    pub interrupt: &'a Interrupt,
    /// Shows how it goes.
    pub progress: Progress<'a>,
}

/// Downloads, verifies and unpacks a version in one pass. After a power cut the version is complete or missing; one that
/// is complete already is not touched.
pub fn install(
    disk: &dyn Disk,
    layout: &Layout,
    profile: &Profile,
    version: &Version,
    download: Download<'_>,
) -> Result<Installed, InstallError> {
    check_names(profile)?;
    let directory = layout.version(version);
    if let Some(sha256) = completed(disk, &layout.checksum(version))? {
        return Ok(Installed { directory, sha256, already: true });
    }
    let part = layout.versions().join(format!("{version}{PART}"));
    let mirrors = u32::try_from(download.urls.len()).unwrap_or(u32::MAX);
    let mut tried = 0;
    for url in download.urls {
        tracing::info!("Downloading {version} from {}", redacted(url));
        // Each has its share of the time, so that the last is reached however slow the others are.
        let patience = Patience::new(download.limits.archive / mirrors, download.interrupt.clone());
        let attempt = Attempt { disk, layout, profile, download, url, version, patience, part: &part };
        match attempt.run_with_restarts() {
            Ok(sha256) => return Ok(Installed { directory, sha256, already: false }),
            Err(error) if error.is_of_the_mirror() && tried + 1 < mirrors => {
                tried += 1;
                tracing::warn!("{error}; the next mirror is tried");
                let pause = Patience::new(download.limits.archive, download.interrupt.clone());
                let stopped = |kind| InstallError::Source(SourceError::new(url, kind));
                download.source.pause(tried, &pause).map_err(stopped)?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(SourceError::new("", SourceErrorKind::Address("no mirror is named".into())).into())
}

fn check_names(profile: &Profile) -> Result<(), InstallError> {
    for name in profile.binaries.iter().map(String::as_str).chain(profile.units()) {
        if name.is_empty() || matches!(name, "." | "..") || name.contains(['/', '\0']) {
            return Err(InstallError::Name { profile: profile.name.clone(), name: name.to_owned() });
        }
    }
    Ok(())
}

fn completed(disk: &dyn Disk, checksum: &Path) -> Result<Option<String>, InstallError> {
    match disk.kind(checksum).map_err(InstallError::on("look at", checksum))? {
        None => Ok(None),
        Some(_) => {
            let text = disk.read(checksum).map_err(InstallError::on("read", checksum))?;
            Ok(Some(String::from_utf8_lossy(&text).trim_end().to_owned()))
        }
    }
}

struct Attempt<'a> {
    disk: &'a dyn Disk,
    layout: &'a Layout,
    profile: &'a Profile,
    download: Download<'a>,
    url: &'a str,
    version: &'a Version,
    patience: Patience,
    part: &'a Path,
}

impl Attempt<'_> {
    fn run_with_restarts(&self) -> Result<String, InstallError> {
        let mut beginnings = 0;
        loop {
            beginnings += 1;
            match self.run() {
                Err(InstallError::Source(error)) if error.needs_restart() && beginnings < MAX_TRIES => {
                    tracing::warn!(%error, "the download is restarted");
                    self.clean();
                    let paused = self.download.source.pause(beginnings, &self.patience);
                    paused.map_err(|kind| SourceError::new(self.url, kind))?;
                }
                Err(error) => {
                    self.clean();
                    return Err(error);
                }
                Ok(sha256) => return Ok(sha256),
            }
        }
    }

    fn run(&self) -> Result<String, InstallError> {
        self.remove(self.part)?;
        let Download { source, limits, interrupt, progress, .. } = self.download;
        let for_checksum = Patience::new(limits.checksum, interrupt.clone());
        let expected = checksum::fetch(source, self.url, &for_checksum, limits)?;
        let download = ResumingReader::open(source, self.url, progress, &self.patience, limits)?;
        let unpacked = UnpackedSize::request(source, self.url, &download, &self.patience);
        if matches!(unpacked, UnpackedSize::Reported(bytes) if bytes > MAX_UNPACKED) {
            return Err(self.refused(ArchiveError::TooLarge(MAX_UNPACKED)));
        }
        let space = DiskSpace::check(self.disk, &self.layout.versions(), unpacked)?;
        self.make_versions()?;
        let url = redacted(self.url);
        let mut unpacker = Unpacker::new(self.disk, self.profile, self.part, space, &url)?;
        let found = self.one_pass(&mut unpacker, download, unpacked.limit())?;
        if found != expected {
            return Err(InstallError::Mismatch { url, expected, found });
        }
        self.put_in_place(&found)?;
        Ok(found)
    }

    /// One thread downloads and hashes; this one inflates and writes, so that disk operations have one order.
    fn one_pass(
        &self,
        unpacker: &mut Unpacker<'_>,
        download: ResumingReader<'_>,
        limit: u64,
    ) -> Result<String, InstallError> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (writer, reader) = pipe(&stop);
            let download = download.until(&stop);
            scope.spawn(|| writer.run(download));
            let mut members = TarReader::new(GzDecoder::new(reader), limit);
            let done = unpacker.run(&mut members);
            let mut reader = members.into_inner().into_inner();
            if let Some(Err(error)) = reader.ended() {
                return Err(error.clone().into());
            }
            done?;
            self.nothing_follows(&mut reader)
        })
    }

    fn nothing_follows(&self, reader: &mut PipeReader<'_>) -> Result<String, InstallError> {
        let rest = io::copy(&mut io::Read::take(&mut *reader, 1), &mut io::sink());
        match (reader.ended(), rest) {
            (Some(Ok(sha256)), Ok(0)) => Ok(sha256.clone()),
            (Some(Err(error)), _) => Err(error.clone().into()),
            (_, Ok(_)) => Err(self.refused(ArchiveError::Trailing)),
            (_, Err(error)) => Err(self.refused(ArchiveError::inflating(&error))),
        }
    }

    fn put_in_place(&self, sha256: &str) -> Result<(), InstallError> {
        let (disk, version) = (self.disk, self.layout.version(self.version));
        for directory in ["bin", "etc/systemd", "etc", ""].map(|name| self.part.join(name)) {
            disk.sync_dir(&directory).map_err(InstallError::on("sync", &directory))?;
        }
        // Left by an installation that was interrupted before its checksum was written.
        self.remove(&version)?;
        disk.rename(self.part, &version).map_err(InstallError::on("put in place", &version))?;
        let versions = self.layout.versions();
        disk.sync_dir(&versions).map_err(InstallError::on("sync", &versions))?;
        let checksum = self.layout.checksum(self.version);
        write_durably(disk, &checksum, format!("{sha256}\n").as_bytes(), 0o644)
            .map_err(InstallError::on("write", &checksum))
    }

    fn make_versions(&self) -> Result<(), InstallError> {
        let versions = self.layout.versions();
        create_dirs_durably(self.disk, &versions, 0o755).map_err(InstallError::on("make", &versions))
    }

    fn remove(&self, directory: &Path) -> Result<(), InstallError> {
        let removed = match self.disk.kind(directory) {
            Ok(None) => Ok(()),
            Ok(Some(crate::FileKind::Directory)) => self.disk.remove_dir_all(directory),
            Ok(Some(_)) => self.disk.remove_file(directory),
            Err(error) => Err(error),
        };
        removed.map_err(InstallError::on("remove", directory))
    }

    /// Removes what a failed attempt has left.
    fn clean(&self) {
        let version = self.layout.version(self.version);
        let mut removed = self.remove(self.part);
        if matches!(completed(self.disk, &self.layout.checksum(self.version)), Ok(None)) {
            removed = removed.and(self.remove(&version));
        }
        if let Err(error) = removed {
            tracing::warn!(%error, "files of a failed installation are left; the next one removes them");
        }
    }

    fn refused(&self, error: ArchiveError) -> InstallError {
        InstallError::Archive { url: redacted(self.url), error }
    }
}
