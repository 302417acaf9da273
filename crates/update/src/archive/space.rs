//! Whether the disk has room for a version: checked before the download and during it.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::install::InstallError;
use super::{Patience, ResumingReader, Source};
use crate::Disk;

/// The largest size of an unpacked archive.
pub(super) const MAX_UNPACKED: u64 = 8 << 30;
/// Directories, the checksum, and what a file takes beyond its bytes.
const SLACK: u64 = 1 << 20;
/// Assumed for an archive of unknown length.
const ASSUMED: u64 = 1 << 30;
/// Agents unpack to three or four times their archive.
const ESTIMATED_RATIO: u64 = 5;
/// No agent unpacks to more; only asked of archives that do not tell their size.
const MAX_RATIO: u64 = 20;
/// Small archives may, if they are this small unpacked.
const SMALL: u64 = 64 << 20;
/// What stays free on the disk, whatever an archive unpacks to: logs and databases of the host need it.
const MAX_RESERVE: u64 = 64 << 20;
/// Of a small disk, that part of what is free.
const RESERVED_PART: u64 = 10;
const CHECK_EVERY: (u64, u64) = (128 << 10, 8 << 20);

/// The size of an archive after unpacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnpackedSize {
    /// As the last bytes of the archive report it.
    Reported(u64),
    /// Estimated from its compressed size.
    Estimated {
        /// What it is likely to be.
        bytes: u64,
        /// What it cannot exceed.
        at_most: u64,
    },
}

impl UnpackedSize {
    /// Asks for the last four bytes of a gzip file, which hold the size modulo 4 GiB.
    pub(super) fn request(
        source: &dyn Source,
        url: &str,
        download: &ResumingReader<'_>,
        patience: &Patience,
    ) -> Self {
        let Some(total) = download.total() else {
            return Self::Estimated { bytes: ASSUMED, at_most: ASSUMED };
        };
        match last_bytes(source, url, total, download.etag(), patience) {
            Some(last) => Self::Reported(full_size(u32::from_le_bytes(last), total)),
            None => Self::Estimated {
                bytes: total.saturating_mul(ESTIMATED_RATIO),
                at_most: total.saturating_mul(MAX_RATIO).max(SMALL),
            },
        }
    }

    /// More bytes than this are certainly a decompression bomb.
    pub(super) fn limit(self) -> u64 {
        match self {
            Self::Reported(bytes) => bytes.min(MAX_UNPACKED),
            Self::Estimated { at_most, .. } => at_most.min(MAX_UNPACKED),
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Reported(bytes) | Self::Estimated { bytes, .. } => bytes,
        }
    }
}

fn last_bytes(
    source: &dyn Source,
    url: &str,
    total: u64,
    etag: Option<&str>,
    patience: &Patience,
) -> Option<[u8; 4]> {
    let from = total.checked_sub(4).filter(|from| *from > 0)?;
    let transfer = match etag {
        Some(etag) => source.resume(url, from, etag, patience),
        None => source.open(url, from, patience),
    };
    let mut transfer = transfer.ok()?;
    if transfer.starts_at != from || transfer.total != Some(total) || transfer.etag.as_deref() != etag {
        return None;
    }
    let mut last = [0; 4];
    transfer.body.read_exact(&mut last).ok()?;
    Some(last)
}

/// The least size that an archive with this size modulo 4 GiB can have: incompressible data grows by 5 bytes in 16 KiB.
fn full_size(modulo: u32, compressed: u64) -> u64 {
    let least = compressed.saturating_sub(compressed / 1024 + 1024);
    let mut bytes = u64::from(modulo);
    while bytes < least {
        bytes += 1 << 32;
    }
    bytes
}

/// The free space of the file system that a version is written to.
#[derive(Debug)]
pub(super) struct DiskSpace<'a> {
    disk: &'a dyn Disk,
    at: PathBuf,
    unpacked: UnpackedSize,
    reserve: u64,
    next_check: u64,
}

impl<'a> DiskSpace<'a> {
    /// Fails before anything is written if there is too little.
    pub(super) fn check(disk: &'a dyn Disk, at: &Path, unpacked: UnpackedSize) -> Result<Self, InstallError> {
        let free = disk.free_bytes(at).map_err(InstallError::on("look for space at", at))?;
        let reserve = MAX_RESERVE.min(free / RESERVED_PART);
        let mut space = Self { disk, at: at.to_owned(), unpacked, reserve, next_check: 0 };
        space.next_check = space.check_every();
        let needed = space.needed(0);
        space.enough(needed, free)?;
        let at = at.display();
        tracing::info!("There is room in {at}: {needed} bytes are needed, {free} are free");
        Ok(space)
    }

    /// Less than the reserve, so that it is never used up between two checks.
    fn check_every(&self) -> u64 {
        (self.reserve / 2).clamp(CHECK_EVERY.0, CHECK_EVERY.1)
    }

    fn needed(&self, taken: u64) -> u64 {
        let rest = self.unpacked.bytes().saturating_sub(taken);
        rest.saturating_add(SLACK).saturating_add(self.reserve)
    }

    /// Checks again now and then, because other processes write to the same disk.
    pub(super) fn recheck(&mut self, taken: u64) -> Result<(), InstallError> {
        if taken < self.next_check {
            return Ok(());
        }
        self.next_check = taken + self.check_every();
        let free = self.disk.free_bytes(&self.at).map_err(InstallError::on("look for space at", &self.at))?;
        self.enough(self.needed(taken), free)
    }

    /// The error for a write that found the disk full.
    pub(super) fn full_error(&self, taken: u64) -> InstallError {
        let needed = self.needed(taken);
        let free = self.disk.free_bytes(&self.at).unwrap_or_default();
        InstallError::NoSpace { at: self.at.clone(), needed, free }
    }

    fn enough(&self, needed: u64, free: u64) -> Result<(), InstallError> {
        if free < needed {
            return Err(InstallError::NoSpace { at: self.at.clone(), needed, free });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_that_an_archive_tells_modulo_4_gib_is_made_whole() {
        const GIB: u64 = 1 << 30;
        for (unpacked, compressed) in [
            (10, 30),
            (GIB, 300 << 20),
            (4 * GIB - 1, GIB),
            (5 * GIB, 2 * GIB),
            (4 * GIB + 10, 4 * GIB + 10 + GIB / 1024),
            (0, 20),
        ] {
            assert_eq!(full_size(unpacked as u32, compressed), unpacked, "{unpacked} from {compressed}");
        }
    }
}
