//! A test host: a directory, the binary under its two names, and the server processes that it runs.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub use refit_testbed::Ran;
use refit_testbed::{bounded, forget_settings};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const REFIT: &str = env!("CARGO_BIN_EXE_refit");
pub const WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(20);

pub struct Host {
    directory: TempDir,
}

impl Host {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(REFIT, directory.path().join("refitctl")).unwrap();
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A server that keeps everything in `data` and is in nobody's way.
    pub fn serve(&self) -> ServerProcess {
        self.serve_with(&[], &[])
    }

    pub fn serve_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> ServerProcess {
        let mut server = self.launch(arguments, variables);
        server.wait_for_greeting();
        server
    }

    /// A server that has been started and may not be ready.
    pub fn launch(&self, arguments: &[&str], variables: &[(&str, &str)]) -> ServerProcess {
        ServerProcess::launch(&self.path("data"), &self.path("log"), arguments, variables)
    }

    /// Runs `refit`, bounded in time.
    pub fn refit(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(Path::new(REFIT), arguments))
    }

    /// Runs `refitctl` by that name.
    pub fn refitctl(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(&self.path("refitctl"), arguments))
    }

    /// Runs `refitctl` with the data directory of the server here.
    pub fn ctl(&self, arguments: &[&str]) -> Ran {
        let data = self.path("data");
        Ran::of(self.command(&self.path("refitctl"), arguments).env("REFIT_DATA_DIR", data))
    }

    pub fn ctl_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let file = self.write("stdin", input);
        let mut command = self.command(&self.path("refitctl"), arguments);
        command.env("REFIT_DATA_DIR", self.path("data")).stdin(File::open(file).unwrap());
        Ran::of(&mut command)
    }

    /// A command that runs here, knows no settings of whoever runs the tests, and ends.
    pub fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = bounded(program);
        command.args(arguments).current_dir(self.directory.path()).env("HOME", self.directory.path());
        command
    }
}

/// A running `refit server`, which ends with the test.
pub struct ServerProcess {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
    /// Everything that it said on its standard output when it was ready.
    pub greeting: String,
}

impl ServerProcess {
    fn launch(data: &Path, log: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", REFIT, "server"]).args(arguments);
        forget_settings(&mut command);
        let set = |name: &str| variables.iter().any(|(set, _)| *set == name);
        let unset = |flag: &str, name: &str| !arguments.contains(&flag) && !set(name);
        if unset("--data-dir", "REFIT_DATA_DIR") {
            command.arg("--data-dir").arg(data);
        }
        // A file is weaker than a variable, so a test that has one says where to listen.
        if !arguments.contains(&"--config") {
            for (flag, name) in [("--listen", "REFIT_LISTEN"), ("--diag-listen", "REFIT_DIAG_LISTEN")] {
                if unset(flag, name) {
                    command.env(name, "127.0.0.1:0");
                }
            }
        }
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        let log_file = File::options().create(true).append(true).open(log).unwrap();
        let mut child = command.stderr(log_file).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines, log: log.into(), greeting: String::new() }
    }

    fn wait_for_greeting(&mut self) {
        let end = Instant::now() + WITHIN;
        let mut ready = false;
        while !ready {
            ready = self.greeting.ends_with("Try next:\n");
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.greeting += &format!("{line}\n"),
                Err(error) => panic!("the server does not start: {error}\n{}\n{}", self.greeting, self.log()),
            }
        }
    }

    /// What the greeting says behind a label.
    pub fn fact(&self, label: &str) -> &str {
        let line = self.greeting.lines().find_map(|line| line.strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label:?} in {}", self.greeting)).trim()
    }

    /// `HOST:PORT` of the TLS port.
    pub fn address(&self) -> &str {
        self.fact("Address").strip_prefix("https://").unwrap()
    }

    /// The command that the greeting proposes.
    pub fn proposed(&self) -> &str {
        self.greeting.lines().last().unwrap().trim()
    }

    /// Status and text of a page of health and metrics.
    pub fn page(&self, path: &str) -> (u16, String) {
        let health = self.fact("Health").strip_prefix("http://").unwrap();
        http_get(health.split('/').next().unwrap(), path)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Waits for its end; gives the exit code and what else it printed.
    pub fn ends(&mut self) -> (Option<i32>, String) {
        let mut ended = None;
        eventually("the server ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let mut rest = String::new();
        loop {
            match self.lines.recv_timeout(WITHIN) {
                Ok(line) => rest += &line,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("the output does not end: {error}"),
            }
        }
        (ended.unwrap().code(), rest)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the condition holds, within a bound.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {WITHIN:?}");
        std::thread::sleep(POLL_EVERY);
    }
}

fn http_get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: refit\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The permissions of a file or directory.
pub fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// An etcd store in which nothing is yet.
pub async fn empty_store(name: &str) -> String {
    let etcd = refit_testbed::Etcd::shared().await;
    format!("etcd://{}/cli-{}-{name}", etcd.endpoint(), std::process::id())
}
