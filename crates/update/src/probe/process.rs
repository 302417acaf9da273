//! What the kernel knows of a process, from `/proc`.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use refit_types::Version;
use rustix::fs::OFlags;

/// More than a process id needs.
const MAX_PID_FILE_BYTES: u64 = 64;
/// The directory of binaries in a version.
const BINARIES: &str = "bin";

/// A process. Ids are reused, so its start time is part of its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    /// Since the host's boot.
    start_ticks: u64,
}

impl Process {
    /// The process of a pid file.
    pub(super) fn named_in(pid_file: &Path) -> Result<Self, String> {
        let shown = pid_file.display();
        let mut text = String::new();
        // Opening a named pipe would block.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(pid_file)
            .and_then(|file| file.take(MAX_PID_FILE_BYTES).read_to_string(&mut text))
            .map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
        let pid: u32 = pid.ok_or_else(|| format!("{shown} has no process id in it: {text:?}"))?;
        let gone = || format!("there is no process {pid}, which {shown} names");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| gone())?;
        Ok(Self { pid, start_ticks: start_ticks(&stat).ok_or_else(gone)? })
    }

    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// The version whose binary it runs, below that directory.
    pub(super) fn version(self, versions: &Path) -> Result<Version, String> {
        let pid = self.pid;
        let binary = fs::read_link(format!("/proc/{pid}/exe"))
            .map_err(|error| format!("the binary of process {pid} is not known: {error}"))?;
        let versions = fs::canonicalize(versions)
            .map_err(|error| format!("{} cannot be used: {error}", versions.display()))?;
        version_of_path(&binary, &versions).ok_or_else(|| {
            format!("process {pid} runs {}, which is of no installed version", binary.display())
        })
    }

    /// Whether it has the other end of a connection on this host; nothing if that end is closed or not visible.
    pub(super) fn has_far_end(self, (ours, theirs): (u16, u16)) -> Option<bool> {
        let mut names: Vec<PathBuf> = Vec::new();
        for table in ["tcp", "tcp6"] {
            let table = fs::read_to_string(format!("/proc/{}/net/{table}", self.pid)).unwrap_or_default();
            let sockets = table.lines().skip(1).filter_map(|line| socket(line, theirs, ours));
            names.extend(sockets.map(|inode| PathBuf::from(format!("socket:[{inode}]"))));
        }
        if names.is_empty() {
            return None;
        }
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        let mut targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        Some(targets.any(|target| names.contains(&target)))
    }
}

/// The process id and the ticks from the host's boot to its start.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.start_ticks)
    }
}

/// The 22nd field of `/proc/PID/stat`; the second is a name that may contain anything.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

/// The version that a path below the directory of versions belongs to; none for a deleted file.
fn version_of_path(binary: &Path, versions: &Path) -> Option<Version> {
    if binary.as_os_str().as_bytes().ends_with(b" (deleted)") {
        return None;
    }
    let mut parts = binary.strip_prefix(versions).ok()?.iter();
    let version = parts.next()?.to_str()?.parse().ok()?;
    let is_binary = parts.next()? == BINARIES && parts.next().is_some();
    is_binary.then_some(version)
}

/// The inode of an open socket between those two ports, in a line of `/proc/net/tcp`.
fn socket(line: &str, local: u16, remote: u16) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |field: &&str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    let is_it = fields.get(1).and_then(port)? == local && fields.get(2).and_then(port)? == remote;
    fields.get(9).copied().filter(|inode| is_it && *inode != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_stat_cannot_move_its_fields() {
        let rest = (4..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        for name in ["teleport", "a) S 1 (b", ") ) )"] {
            assert_eq!(start_ticks(&format!("17 ({name}) S {rest}")), Some(22), "{name}");
        }
        for bad in ["", "17", "17 (x", "17 (x) S 1 2", ")"] {
            assert_eq!(start_ticks(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_binary_belongs_to_the_version_whose_directory_it_is_in() {
        let versions = Path::new("/var/lib/refit/versions");
        let version = |path: &str| version_of_path(Path::new(path), versions).map(|found| found.to_string());
        assert_eq!(version("/var/lib/refit/versions/1.2.3/bin/refit"), Some("1.2.3".into()));
        for other in [
            "/var/lib/refit/versions/1.2.3/bin/refit (deleted)",
            "/var/lib/refit/versions/1.2.3/refit",
            "/var/lib/refit/versions/1.2.3/bin",
            "/var/lib/refit/versions/next/bin/refit",
            "/var/lib/refit/1.2.3/bin/refit",
            "/usr/local/bin/refit",
        ] {
            assert_eq!(version(other), None, "{other}");
        }
    }

    #[test]
    fn a_connection_is_found_by_its_ports() {
        let line =
            "  12: 0100007F:0BB8 0100007F:C001 01 00000000:00000000 00:00000000 00000000  0  0 4711 1 x";
        assert_eq!(socket(line, 3000, 0xC001), Some("4711"));
        assert_eq!(socket(line, 0xC001, 3000), None);
        assert_eq!(socket(&line.replace("4711", "0"), 3000, 0xC001), None);
        assert_eq!(socket("sl local_address rem_address", 3000, 0xC001), None);
    }
}
