//! Writes the members of an archive to the disk. Called by the installation.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ArchiveError;
use super::destination::{Destination, DestinationMap};
use super::install::InstallError;
use super::space::DiskSpace;
use super::tar_reader::TarReader;
use crate::{Disk, Profile};

const BUFFER: usize = 128 * 1024;

/// Writes the members that the profile names below one directory, under names of the profile: an archive cannot choose
/// its paths.
pub(super) struct Unpacker<'a> {
    disk: &'a dyn Disk,
    profile: &'a Profile,
    map: DestinationMap<'a>,
    bin: PathBuf,
    units: PathBuf,
    space: DiskSpace<'a>,
    url: &'a str,
    files: BTreeSet<String>,
    links: BTreeMap<String, String>,
    found_units: BTreeSet<String>,
}

impl<'a> Unpacker<'a> {
    /// Makes the directories below `part`, which must not exist.
    pub(super) fn new(
        disk: &'a dyn Disk,
        profile: &'a Profile,
        part: &Path,
        space: DiskSpace<'a>,
        url: &'a str,
    ) -> Result<Self, InstallError> {
        let (bin, units) = (part.join("bin"), part.join("etc/systemd"));
        for directory in [part, &bin, &part.join("etc"), &units] {
            disk.create_dir(directory, 0o755).map_err(InstallError::on("make", directory))?;
        }
        let (files, found_units, links) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let map = DestinationMap::new(profile);
        Ok(Self { disk, profile, map, bin, units, space, url, files, links, found_units })
    }

    /// Unpacks the whole archive and syncs its files; the caller syncs the directories.
    pub(super) fn run<R: Read>(&mut self, members: &mut TarReader<R>) -> Result<(), InstallError> {
        let mut names = HashSet::new();
        let mut buffer = vec![0; BUFFER];
        while let Some(member) = members.next_member().map_err(|error| self.refused(error))? {
            let (name, destination) = self.map.destination(&member).map_err(|error| self.refused(error))?;
            if !names.insert(name) {
                return Err(self.refused(ArchiveError::member(&member.name, "is there twice")));
            }
            match destination {
                Destination::Ignored => {}
                Destination::Link(link, target) => {
                    self.links.insert(link, target);
                }
                Destination::Binary(binary) => {
                    self.write(&self.bin.join(&binary), 0o755, members, &mut buffer)?;
                    self.files.insert(binary);
                }
                Destination::Unit(unit) => {
                    self.write(&self.units.join(&unit), 0o644, members, &mut buffer)?;
                    self.found_units.insert(unit);
                }
            }
        }
        self.complete()?;
        // Links are made last, so that nothing is written through one.
        for (link, target) in &self.links {
            let link = self.bin.join(link);
            self.disk.symlink(Path::new(target), &link).map_err(InstallError::on("link", &link))?;
        }
        Ok(())
    }

    fn write<R: Read>(
        &mut self,
        path: &Path,
        mode: u32,
        members: &mut TarReader<R>,
        buffer: &mut [u8],
    ) -> Result<(), InstallError> {
        let mut file = self
            .disk
            .create_file(path, mode)
            .map_err(|error| self.unwritten(path, error, members.taken()))?;
        loop {
            let bytes = members.read_body(buffer).map_err(|error| self.refused(error))?;
            if bytes == 0 {
                break;
            }
            self.space.recheck(members.taken())?;
            file.write_all(&buffer[..bytes]).map_err(|error| self.unwritten(path, error, members.taken()))?;
        }
        let synced = file.flush().and_then(|()| {
            drop(file);
            self.disk.sync_file(path)
        });
        synced.map_err(|error| self.unwritten(path, error, members.taken()))
    }

    /// Checks that everything the profile names is there, as a file or as a link to one.
    fn complete(&self) -> Result<(), InstallError> {
        let mut missing = Vec::new();
        for binary in &self.profile.binaries {
            let mut end = binary;
            for _ in 0..self.profile.binaries.len() {
                end = self.links.get(end).unwrap_or(end);
            }
            if !self.files.contains(end) {
                missing.push(binary.clone());
            }
        }
        let units = self.profile.units().filter(|unit| !self.found_units.contains(*unit));
        missing.extend(units.map(|unit| self.profile.archive_path(unit).display().to_string()));
        if missing.is_empty() { Ok(()) } else { Err(self.refused(ArchiveError::Missing(missing))) }
    }

    fn refused(&self, error: ArchiveError) -> InstallError {
        InstallError::Archive { url: self.url.to_owned(), error }
    }

    fn unwritten(&self, path: &Path, error: io::Error, taken: u64) -> InstallError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.space.full_error(taken),
            _ => InstallError::on("write", path)(error),
        }
    }
}
