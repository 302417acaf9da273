//! Runs `refit demo` as a process and reads its output. Shared by the demo and browser tests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use refit_testbed::{Ran, Signal, bounded, directory, eventually};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// A version that does not run is given more than a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(240);

/// The program without what debuggers need: it is copied for every host.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(|| {
        let folder = directory();
        let program = folder.path().join("refit");
        let stripped = Command::new("strip").arg("-o").arg(&program).arg(REFIT).output().unwrap();
        assert!(stripped.status.success(), "{}", String::from_utf8_lossy(&stripped.stderr));
        (folder, program)
    });
    program
}

/// A demonstration in a directory of its own.
pub struct Demo {
    child: Child,
    folder: TempDir,
    temporary: PathBuf,
}

impl Demo {
    /// For somebody who has settings of a real cluster, which are none of its business.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = directory();
        let temporary = folder.path().join("t");
        std::fs::create_dir(&temporary).unwrap();
        let open = |name: &str| File::create(folder.path().join(name)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program()).arg("demo").args(arguments);
        command.env("TMPDIR", &temporary).env("HTTPS_PROXY", "http://127.0.0.1:9");
        command
            .env("REFIT_CONFIG", "/no/such.yaml")
            .env("REFIT_DATA_DIR", "/no/such")
            .env("REFIT_PROXY", "none:1");
        command.env("REFIT_TOKEN", "s3cret").env("REFIT_SERVER", "none:1").env("REFIT_NODENAME", "another");
        command.stdin(Stdio::null()).stdout(open("out")).stderr(open("err"));
        Self { child: command.spawn().unwrap(), folder, temporary }
    }

    pub fn told(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    pub async fn says(&self, words: &str) {
        let what = format!("{words:?} in {}", self.folder.path().display());
        eventually(&what, TIMEOUT, async || self.told("out").contains(words)).await;
    }

    /// The directory in which everything is.
    fn place(&self) -> PathBuf {
        std::fs::read_dir(&self.temporary).unwrap().next().unwrap().unwrap().path()
    }

    /// Runs `refitctl` as the demonstration invites to.
    pub fn ctl(&self, arguments: &[&str]) -> Ran {
        let data = self.place().join("server");
        Ran::of(bounded(program()).args(["ctl", "--data-dir"]).arg(data).args(arguments))
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Its exit code and what it told, by both ways.
    pub async fn ends(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        eventually("the end of the demonstration", LONG_PATIENCE, || {
            status = self.child.try_wait().unwrap();
            std::future::ready(status.is_some())
        })
        .await;
        (status.unwrap().code(), self.told("out") + &self.told("err"))
    }

    /// What still runs of it: everything that it starts has its directory in its arguments.
    pub fn runs(&self) -> Vec<String> {
        let own = self.temporary.to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(own)).collect()
    }

    #[track_caller]
    pub fn left_nothing(&self) {
        assert_eq!(self.runs(), Vec::<String>::new());
        let files: Vec<_> =
            std::fs::read_dir(&self.temporary).unwrap().flatten().map(|entry| entry.path()).collect();
        assert_eq!(files, Vec::<PathBuf>::new());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
