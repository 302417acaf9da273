//! Fixtures of the archive tests: archives, a source that fails on request, and a disk that records operations and fails.

#![allow(dead_code, clippy::unwrap_used)]

pub mod server;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use refit_types::Version;
use refit_update::archive::{Source, SourceError, SourceErrorKind, Transfer};
use refit_update::{
    Disk, Download, FileKind, InstallError, Installed, Interrupt, Layout, Patience, Profile, RealDisk,
    TransferLimits, install,
};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};
use tempfile::TempDir;

pub const URL: &str = "https://host.example/refit-oss-v1.2.3-linux-amd64-bin.tar.gz";

/// A member of an archive, with a header that may lie.
#[derive(Debug, Clone)]
pub struct Raw {
    pub name: Vec<u8>,
    pub kind: u8,
    pub link: Vec<u8>,
    pub mode: u32,
    pub body: Vec<u8>,
    pub size: Option<u64>,
}

pub fn raw(kind: u8, name: &str) -> Raw {
    Raw { name: name.into(), kind, link: vec![], mode: 0o755, body: vec![], size: None }
}

pub fn file(name: &str, body: impl Into<Vec<u8>>) -> Raw {
    Raw { body: body.into(), ..raw(b'0', name) }
}

pub fn directory(name: &str) -> Raw {
    raw(b'5', name)
}

pub fn symlink(name: &str, target: &str) -> Raw {
    Raw { link: target.into(), ..raw(b'2', name) }
}

pub fn hard_link(name: &str, target: &str) -> Raw {
    Raw { link: target.into(), ..raw(b'1', name) }
}

impl Raw {
    pub fn append(&self, tar: &mut Vec<u8>) {
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        let name = &self.name[..self.name.len().min(100)];
        gnu.name[..name.len()].copy_from_slice(name);
        let link = &self.link[..self.link.len().min(100)];
        gnu.linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(EntryType::new(self.kind));
        header.set_mode(self.mode);
        header.set_size(self.size.unwrap_or(self.body.len() as u64));
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        tar.extend_from_slice(header.as_bytes());
        tar.extend_from_slice(&self.body);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
}

/// The members of an archive that has nothing wrong.
pub fn good() -> Vec<Raw> {
    vec![
        directory("refit/"),
        file("refit/refit", "#!/bin/sh\n"),
        symlink("refit/refitctl", "refit"),
        hard_link("refit/refit-update", "refit/refit"),
        directory("refit/etc/"),
        directory("refit/etc/systemd/"),
        Raw { mode: 0o600, ..file("refit/etc/systemd/refit.service", "[Unit]\n") },
        file("refit/etc/systemd/refit-update.service", "[Unit]\n"),
        file("refit/etc/systemd/refit-update.timer", "[Unit]\n"),
        file("refit/etc/systemd/refit-update.path", "[Unit]\n"),
        file("refit/README", "read me"),
    ]
}

pub fn tar(members: &[Raw]) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in members {
        member.append(&mut tar);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn archive(members: &[Raw]) -> Vec<u8> {
    gzip(&tar(members))
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that do not compress.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// Files in memory.
#[derive(Default)]
pub struct Memory {
    pub files: Mutex<HashMap<String, Vec<u8>>>,
    /// Each answer breaks off after that many bytes; they are used up one by one.
    pub cuts: Mutex<Vec<usize>>,
    /// They break off without an error.
    pub quietly: bool,
    pub no_ranges: bool,
    pub no_total: bool,
    /// The archive is another one from that opening on.
    pub changes: Mutex<Option<(usize, Vec<u8>)>>,
    pub opened: AtomicUsize,
    pub pauses: AtomicUsize,
}

impl Memory {
    pub fn of(archive: Vec<u8>) -> Self {
        let memory = Self::default();
        memory.put(archive);
        memory
    }

    pub fn put(&self, archive: Vec<u8>) {
        let mut files = self.files.lock().unwrap();
        let name = URL.rsplit('/').next().unwrap();
        files.insert(format!("{URL}.sha256"), format!("{}  {name}\n", sha256(&archive)).into_bytes());
        files.insert(URL.into(), archive);
    }

    pub fn pauses(&self) -> usize {
        self.pauses.load(Ordering::Relaxed)
    }
}

struct Breaks(io::Cursor<Vec<u8>>, Option<usize>, bool);

impl Read for Breaks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.1.unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return if self.2 { Ok(0) } else { Err(io::Error::other("cut")) };
        }
        let bytes = self.0.read(&mut buffer[..most])?;
        self.1 = self.1.map(|left| left - bytes);
        Ok(bytes)
    }
}

impl Source for Memory {
    fn open(&self, url: &str, from: u64, _: &Patience) -> Result<Transfer, SourceError> {
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        let mut changes = self.changes.lock().unwrap();
        if changes.as_ref().is_some_and(|(at, _)| opened >= *at) {
            self.put(changes.take().unwrap().1);
        }
        let files = self.files.lock().unwrap();
        let bytes =
            files.get(url).cloned().ok_or_else(|| SourceError::new(url, SourceErrorKind::Status(404)))?;
        let starts_at = if self.no_ranges { 0 } else { from.min(bytes.len() as u64) };
        let rest = bytes[starts_at as usize..].to_vec();
        // The end of an archive is asked for in peace.
        let cut = (url == URL && rest.len() > 4).then(|| self.cuts.lock().unwrap().pop()).flatten();
        Ok(Transfer {
            body: Box::new(Breaks(io::Cursor::new(rest), cut, self.quietly)),
            total: (!self.no_total).then_some(bytes.len() as u64),
            etag: Some(sha256(&bytes)),
            starts_at,
        })
    }

    fn pause(&self, failures: u32, patience: &Patience) -> Result<(), SourceErrorKind> {
        assert!(failures > 0);
        self.pauses.fetch_add(1, Ordering::Relaxed);
        patience.check()
    }
}

/// A host in a directory.
pub struct Host {
    pub root: TempDir,
    pub profile: Profile,
    pub layout: Layout,
    pub version: Version,
}

impl Host {
    pub fn new() -> Self {
        Self::with(Profile::refit())
    }

    pub fn with(profile: Profile) -> Self {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path(), &profile, None);
        Self { root, profile, layout, version: "1.2.3".parse().unwrap() }
    }

    pub fn install(&self, source: &dyn Source) -> Result<Installed, InstallError> {
        self.install_on(&RealDisk, source)
    }

    pub fn install_on(&self, disk: &dyn Disk, source: &dyn Source) -> Result<Installed, InstallError> {
        self.install_from(disk, source, &[URL.into()], &TransferLimits::default())
    }

    pub fn install_from(
        &self,
        disk: &dyn Disk,
        source: &dyn Source,
        urls: &[String],
        limits: &TransferLimits,
    ) -> Result<Installed, InstallError> {
        let (interrupt, progress) = (&Interrupt::never(), &|_, _| {});
        let download = Download { source, urls, limits, interrupt, progress };
        install(disk, &self.layout, &self.profile, &self.version, download)
    }

    pub fn directory(&self) -> PathBuf {
        self.layout.version(&self.version)
    }

    /// Every path that exists, below the root; directories end with a slash, links show where they lead.
    pub fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(self.root.path(), self.root.path(), &mut found);
        found.sort();
        found
    }

    /// Whether nothing but directories that every host has is there.
    pub fn is_bare(&self) -> bool {
        let bare = ["var/", "var/lib/", "var/lib/refit/", "var/lib/refit/versions/"];
        self.tree().iter().all(|path| bare.contains(&path.as_str()))
    }
}

fn walk(root: &Path, at: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let shown = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.push(shown + "/");
            walk(root, &path, found);
        } else if kind.is_symlink() {
            found.push(format!("{shown} -> {}", fs::read_link(&path).unwrap().display()));
        } else {
            found.push(shown);
        }
    }
}

/// Notes every operation that changes something, and fails as told.
#[derive(Debug, Default)]
pub struct RecordingDisk {
    pub notes: Mutex<Vec<String>>,
    /// The operation that fails, counted from 0, and whether all after it do too.
    pub fails: Option<(usize, bool)>,
    pub free: Option<AtomicU64>,
    /// Writes fail once that many bytes were written in all.
    pub room: Option<AtomicU64>,
    /// A disk of its own that has so much left, and loses it by what is written.
    pub left: Option<Arc<AtomicU64>>,
}

impl RecordingDisk {
    fn note(&self, what: &str, path: &Path) -> io::Result<()> {
        let mut notes = self.notes.lock().unwrap();
        let number = notes.len();
        let path = path.display().to_string();
        let path = path.split("/versions").nth(1).map(String::from).unwrap_or(path);
        notes.push(format!("{what} {path}"));
        match self.fails {
            Some((at, after)) if number == at || after && number > at => {
                Err(io::Error::other("told to fail"))
            }
            _ => Ok(()),
        }
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }
}

struct LimitedFile(Box<dyn Write + Send>, Option<u64>, Option<Arc<AtomicU64>>);

impl Write for LimitedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(room) = &mut self.1 {
            if *room < bytes.len() as u64 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= bytes.len() as u64;
        }
        if let Some(left) = &self.2 {
            let taken = |left: u64| left.checked_sub(bytes.len() as u64);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
                .map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Disk for RecordingDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        RealDisk.read(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        RealDisk.read_link(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(directory)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        RealDisk.kind(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        if let Some(left) = &self.left {
            return Ok(left.load(Ordering::Relaxed));
        }
        let Some(free) = &self.free else { return RealDisk.free_bytes(path) };
        // Half of it is gone at each look: others write too.
        Ok(free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(free / 2)).unwrap())
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.note("make", path)?;
        RealDisk.create_dir(path, mode)
    }

    fn create_file(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Write + Send>> {
        self.note("create", path)?;
        let room = self.room.as_ref().map(|room| room.load(Ordering::Relaxed));
        Ok(Box::new(LimitedFile(RealDisk.create_file(path, mode)?, room, self.left.clone())))
    }

    fn set_access(&self, path: &Path, owner: (u32, u32), mode: u32) -> io::Result<()> {
        self.note("set the access to", path)?;
        RealDisk.set_access(path, owner, mode)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.note("sync", path)?;
        RealDisk.sync_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note("sync", path)?;
        RealDisk.sync_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note("rename to", to)?;
        RealDisk.rename(from, to)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.note("link", link)?;
        RealDisk.symlink(target, link)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.note("remove", path)?;
        RealDisk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.note("remove", path)?;
        RealDisk.remove_dir_all(path)
    }

    fn back_up_database(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.back_up_database(from, to)
    }
}
