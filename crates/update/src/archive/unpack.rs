use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ArchiveProblem;
use super::install::InstallError;
use super::members::Members;
use super::place::{Map, Place};
use super::space::Space;
use crate::{Disk, Profile};

const BUFFER: usize = 128 * 1024;

/// Writes the members that the profile asks for below one directory, under names that the profile gives: nothing in
/// an archive can choose where it goes.
pub(super) struct Unpacker<'a> {
    disk: &'a dyn Disk,
    profile: &'a Profile,
    map: Map<'a>,
    bin: PathBuf,
    units: PathBuf,
    space: Space<'a>,
    url: &'a str,
    files: BTreeSet<String>,
    links: BTreeMap<String, String>,
    found_units: BTreeSet<String>,
}

impl<'a> Unpacker<'a> {
    /// Makes the directories below `part`, where nothing is.
    pub(super) fn new(
        disk: &'a dyn Disk,
        profile: &'a Profile,
        part: &Path,
        space: Space<'a>,
        url: &'a str,
    ) -> Result<Self, InstallError> {
        let (bin, units) = (part.join("bin"), part.join("etc/systemd"));
        for directory in [part, &bin, &part.join("etc"), &units] {
            disk.create_dir(directory, 0o755).map_err(InstallError::on("make", directory))?;
        }
        let (files, found_units, links) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let map = Map::new(profile);
        Ok(Self { disk, profile, map, bin, units, space, url, files, links, found_units })
    }

    /// Unpacks an archive whole. Bytes reach the disk; names do when the directories are synced.
    pub(super) fn run<R: Read>(&mut self, members: &mut Members<R>) -> Result<(), InstallError> {
        let mut names = HashSet::new();
        let mut buffer = vec![0; BUFFER];
        while let Some(member) = members.next_member().map_err(|problem| self.refused(problem))? {
            let (name, place) = self.map.place(&member).map_err(|problem| self.refused(problem))?;
            if !names.insert(name) {
                return Err(self.refused(ArchiveProblem::member(&member.name, "is there twice")));
            }
            match place {
                Place::PassedOver => {}
                Place::Link(link, target) => {
                    self.links.insert(link, target);
                }
                Place::Binary(binary) => {
                    self.write(&self.bin.join(&binary), 0o755, members, &mut buffer)?;
                    self.files.insert(binary);
                }
                Place::Unit(unit) => {
                    self.write(&self.units.join(&unit), 0o644, members, &mut buffer)?;
                    self.found_units.insert(unit);
                }
            }
        }
        self.complete()?;
        // Links come last, so that nothing was ever written through one.
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
        members: &mut Members<R>,
        buffer: &mut [u8],
    ) -> Result<(), InstallError> {
        let mut file = self
            .disk
            .create_file(path, mode)
            .map_err(|error| self.unwritten(path, error, members.taken()))?;
        loop {
            let bytes = members.read_body(buffer).map_err(|problem| self.refused(problem))?;
            if bytes == 0 {
                break;
            }
            self.space.still_enough(members.taken())?;
            file.write_all(&buffer[..bytes]).map_err(|error| self.unwritten(path, error, members.taken()))?;
        }
        let synced = file.flush().and_then(|()| {
            drop(file);
            self.disk.sync_file(path)
        });
        synced.map_err(|error| self.unwritten(path, error, members.taken()))
    }

    /// Whether all is there that the profile asks for, as a file or as a link that ends at one.
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
        if missing.is_empty() { Ok(()) } else { Err(self.refused(ArchiveProblem::Missing(missing))) }
    }

    fn refused(&self, problem: ArchiveProblem) -> InstallError {
        InstallError::Archive { url: self.url.to_owned(), problem }
    }

    fn unwritten(&self, path: &Path, error: io::Error, taken: u64) -> InstallError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.space.full(taken),
            _ => InstallError::on("write", path)(error),
        }
    }
}
