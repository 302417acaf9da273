//! Machines with a systemd of their own, for tests of services, packages and power cuts.

mod base;
mod boot;
mod leftovers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::{Process, directory};
use boot::Running;

/// No command of a test takes longer. Both are needed: what a machine runs ends by its own systemd only.
const COMMAND_WITHIN: &str = "330";
const RUNS_WITHIN: &str = "--property=RuntimeMaxSec=300";

/// A computer with Debian and a booted systemd, on the network of this host. Its disk outlives its power; both
/// are gone after the test, even when that is killed.
#[derive(Debug)]
pub struct Machine {
    name: String,
    running: Option<Running>,
    /// Keeps the disk mounted in a private mount namespace.
    disk: Process,
    folder: TempDir,
}

impl Machine {
    /// A machine with a fresh disk, switched off.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        leftovers::sweep();
        let name = leftovers::name(NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = directory();
        for part in ["changes", "work", "root"] {
            std::fs::create_dir(folder.path().join(part)).expect("a directory for the disk");
        }
        let script = "mount -t overlay overlay -o \"lowerdir=$1,upperdir=changes,workdir=work\" root \
                      && touch mounted && exec sleep infinity";
        let script = format!("cd \"$2\" && {script}");
        let (base, here) = (base::base(), folder.path().display().to_string());
        let base = base.to_str().expect("a path in UTF-8");
        let arguments = ["--mount", "--propagation", "private", "sh", "-c", &script, "sh", base, &here]
            .map(str::to_owned);
        let log = folder.path().join("disk.log");
        let mut disk = Process::start("unshare", &arguments, &log);
        boot::wait_for("the machine's disk", || {
            assert!(!disk.has_ended(), "no disk: {:?}", std::fs::read_to_string(&log));
            folder.path().join("mounted").exists()
        });
        let machine = Self { name, running: None, disk, folder };
        let id = format!("{:032x}\n", machine.number());
        std::fs::write(machine.path("/etc/machine-id"), id).expect("an id of its own");
        std::fs::write(machine.path("/etc/hostname"), &machine.name).expect("a name of its own");
        machine
    }

    /// A machine with a fresh disk that has booted.
    pub fn booted() -> Self {
        let mut machine = Self::new();
        machine.boot();
        machine
    }

    /// Its name, which is its host name too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file of it, running or not. Links that it has on the way must be relative: others lead to this host.
    pub fn path(&self, inside: &str) -> PathBuf {
        let root = self.folder.path().join("root");
        let root = Path::new("/proc").join(self.disk.pid().to_string()).join("root").join(below(&root));
        root.join(below(Path::new(inside)))
    }

    /// Switches it on, and waits until all that it starts by itself has started.
    pub fn boot(&mut self) {
        assert!(self.running.is_none(), "{} runs", self.name);
        self.running = Some(Running::boot(&self.name, self.folder.path(), self.disk.pid()));
    }

    /// Cuts its power: all processes die at once, without a signal.
    pub fn cut_power(&mut self) {
        self.running = None;
    }

    /// Shuts it down in order.
    pub fn shut_down(&mut self) {
        self.systemctl(&["--no-block", "poweroff"]);
        if let Some(running) = &mut self.running {
            running.wait_for_end();
        }
        self.running = None;
    }

    /// Runs a command in it, and says how it ended.
    pub fn run(&self, command: &[&str]) -> Output {
        self.by(
            &["systemd-run", "--quiet", "--wait", "--pipe", "--collect", RUNS_WITHIN],
            &[&["--"], command].concat(),
        )
    }

    /// Asks its systemd. Whatever has to do with enabling is a matter of files: that is for [`Machine::run`].
    pub fn systemctl(&self, arguments: &[&str]) -> Output {
        self.by(&["systemctl"], arguments)
    }

    /// What its systemd knows about a unit.
    pub fn show(&self, unit: &str, property: &str) -> String {
        let shown = self.systemctl(&["show", "--value", "--property", property, unit]);
        String::from_utf8_lossy(&shown.stdout).trim().to_owned()
    }

    /// Its journal, also of before the last cut.
    pub fn journal(&self) -> String {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--output=short-precise", "--directory"]);
        let read = command.arg(self.path("/var/log/journal")).output().expect("journalctl");
        String::from_utf8_lossy(&read.stdout).into_owned()
    }

    /// Runs a program of this host on a file of the machine, running or not. For programs that look where links
    /// lead, as SQLite's do: a [`Machine::path`] is none for them.
    pub fn outside(&self, program: &[&str], inside: &str, rest: &[&str]) -> Output {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.disk.pid());
        let path = self.folder.path().join("root").join(below(Path::new(inside)));
        let mut command = Command::new("nsenter");
        command.args([&namespace, "--"]).args(program).arg(path).args(rest).stdin(Stdio::null());
        command.output().expect("nsenter")
    }

    fn by(&self, program: &[&str], arguments: &[&str]) -> Output {
        assert!(self.running.is_some(), "{} is switched off", self.name);
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", COMMAND_WITHIN]).args(program).args(["--machine", &self.name]);
        command.args(arguments).stdin(Stdio::null()).output().expect("systemd's programs")
    }

    fn number(&self) -> u64 {
        let mut digits = self.name.rsplit('-').filter_map(|part| part.parse::<u64>().ok());
        let (number, process) = (digits.next().unwrap_or_default(), digits.next().unwrap_or_default());
        process << 32 | number
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the journal of {}:\n{}", self.name, self.journal());
        }
        self.running = None;
        self.disk.kill();
    }
}

fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
