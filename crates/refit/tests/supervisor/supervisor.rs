//! A running `refit-update supervise` in an image, and the agent that it runs.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use refit_testbed::{eventually, forget_settings};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, Image, PATIENCE, REFIT, said};

pub struct Supervisor {
    child: Child,
    data: PathBuf,
    log: PathBuf,
}

impl Supervisor {
    /// Of an agent that knows from the image's configuration how to join.
    pub fn start(cluster: &Cluster, image: &Image) -> Self {
        let config = image.root.join("etc/refit.yaml");
        if !config.exists() {
            let data = cluster.folder.path().join("server");
            let add = ["nodes", "add", "--roles", "node", "--format", "json"];
            let made = Command::new(REFIT).args(["ctl", "--data-dir"]).arg(data).args(add).output().unwrap();
            let made: Value = serde_json::from_str(&said(&made)).unwrap();
            let (proxy, pin, token) = (&cluster.address, &cluster.pin, made["token"].as_str().unwrap());
            std::fs::create_dir_all(config.parent().unwrap()).unwrap();
            let text = format!("refit:\n  proxy: {proxy}\n  ca_pin: {pin}\n  token: {token}\n");
            std::fs::write(config, text).unwrap();
        }
        Self::start_with(image, &["supervise", "--every", "24h"])
    }

    pub fn start_with(image: &Image, arguments: &[&str]) -> Self {
        let (data, log) = (image.root.join("var/lib/refit"), image.root.with_extension("log"));
        let open = || File::options().create(true).append(true).open(&log).unwrap();
        let called = image.command(arguments);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(called.get_program()).args(called.get_args());
        forget_settings(&mut command);
        command.stdin(Stdio::null()).stdout(open()).stderr(open());
        Self { child: command.spawn().unwrap(), data, log }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub async fn says(&self, words: &str) {
        eventually(&format!("{words:?} in the log"), PATIENCE, async || self.log().contains(words)).await;
    }

    pub fn socket(&self) -> PathBuf {
        self.data.join("supervisor.sock")
    }

    /// What it answers to these bytes; nothing if nobody answers.
    pub fn tell(&self, bytes: &[u8]) -> Option<Value> {
        let mut stream = UnixStream::connect(self.socket()).ok()?;
        stream.write_all(bytes).ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        serde_json::from_slice(&answer).ok()
    }

    /// Asks for something that it does.
    #[track_caller]
    pub fn obeys(&self, request: Value) {
        assert_eq!(self.tell(request.to_string().as_bytes()), Some("done".into()), "{request}");
    }

    pub fn state(&self) -> Option<Value> {
        Some(self.tell(b"\"state\"\n")?["state"].clone())
    }

    /// What the agent itself says, if it answers.
    pub fn readiness(&self) -> Option<Value> {
        let mut answer = Vec::new();
        UnixStream::connect(self.data.join("agent.sock")).ok()?.read_to_end(&mut answer).ok()?;
        serde_json::from_slice(&answer).ok()
    }

    /// Waits until an agent is connected of which that holds.
    pub async fn agent(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        let what = format!("an agent that {what}; see {}", self.log.display());
        eventually(&what, PATIENCE, || {
            found = self.readiness().filter(|agent| agent["connected"] == true && holds(agent));
            std::future::ready(found.is_some())
        })
        .await;
        found.unwrap()
    }

    pub async fn runs(&self, version: &str) -> Value {
        self.agent(&format!("is {version}"), |agent| agent["version"] == version).await
    }

    pub fn signal(&self, signal: Signal) {
        send(i64::from(self.child.id()), signal);
    }

    /// Waits for its end and gives the exit code.
    pub async fn ends(&mut self) -> Option<i32> {
        let mut ended = None;
        eventually("the supervisor ends", PATIENCE, || {
            ended = self.child.try_wait().unwrap();
            std::future::ready(ended.is_some())
        })
        .await;
        ended.unwrap().code()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}

pub fn send(pid: i64, signal: Signal) {
    kill_process(i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap(), signal).unwrap();
}

pub fn pid(agent: &Value) -> i64 {
    agent["pid"].as_i64().unwrap()
}

/// Whether a process is there and more than a name that nobody has buried.
pub fn is_alive(pid: i64) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

pub async fn is_gone(pid: i64) {
    eventually("the process is gone", PATIENCE, async || !is_alive(pid)).await;
}

/// The processes whose command lines name something in the image.
pub fn left_of(image: &Image) -> Vec<String> {
    let root = image.root.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(root)).collect()
}
