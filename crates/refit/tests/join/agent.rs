//! A running `refit agent` process, and its record at the control plane.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use refit_testbed::forget_settings;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::{Host, REFIT, Ran, eventually};

/// A process that is the agent of a data directory, and ends with the test.
pub struct Agent {
    child: Child,
    data: PathBuf,
    log: PathBuf,
}

impl Agent {
    /// Starts the agent of the data directory `name` with these arguments behind `agent start`.
    pub fn start(host: &Host, name: &str, arguments: &[&str]) -> Self {
        Self::start_by(Path::new(REFIT), host, name, arguments, &[])
    }

    pub fn start_by(
        program: &Path,
        host: &Host,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let (data, log) = (host.path(name), host.path(&format!("{name}.log")));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(["agent", "start"]).args(arguments);
        forget_settings(&mut command);
        command.arg("--data-dir").arg(&data).envs(variables.iter().copied());
        let open = || File::options().create(true).append(true).open(&log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(open()).stderr(open()).spawn().unwrap();
        Self { child, data, log }
    }

    /// Starts the agent by the line that `nodes add` gave.
    pub fn paste(host: &Host, name: &str, token: &Value) -> Self {
        Self::start(host, name, &pasted(token))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn uuid(&self) -> String {
        std::fs::read_to_string(self.data.join("host_uuid")).unwrap().trim().into()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    pub fn says(&self, words: &str) {
        eventually(&format!("{words:?} in {}", self.log.display()), || self.log().contains(words));
    }

    /// What `agent status` says, if it answers.
    pub fn status(&self, host: &Host) -> Option<Value> {
        let data = self.data.to_str().unwrap();
        let ran = host.refit(&["agent", "status", "--data-dir", data, "--format", "json"]);
        serde_json::from_str(&ran.stdout).ok()
    }

    #[track_caller]
    pub fn connects(&self, host: &Host) {
        eventually(&format!("the agent connects\n{}", self.log()), || {
            self.status(host).is_some_and(|status| status["connected"] == true)
        });
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Waits for its end and gives the exit code.
    pub fn ends(&mut self) -> Option<i32> {
        let mut ended = None;
        eventually("the agent ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap().code()
    }

    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.ends(), Some(0), "{}", self.log());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The arguments of a line that `nodes add` gave, behind `refit agent start`.
#[track_caller]
pub fn pasted(token: &Value) -> Vec<&str> {
    let line = token["command"].as_str().unwrap();
    line.strip_prefix("refit agent start ").unwrap().split(' ').collect()
}

pub fn new_token(host: &Host, roles: &str) -> Value {
    host.ctl(&["nodes", "add", "--roles", roles, "--format", "json"]).json()
}

/// The fleet, as the server of `host` lists it.
pub fn nodes(host: &Host, arguments: &[&str]) -> Vec<Value> {
    let listed = host.ctl(&[&["nodes", "ls", "--format", "json"], arguments].concat()).json();
    listed.as_array().unwrap().clone()
}

pub fn node(host: &Host, uuid: &str) -> Option<Value> {
    nodes(host, &[]).into_iter().find(|node| node["host_id"] == uuid)
}

/// An agent that should not live: its exit code, and the one error that it ended with.
#[track_caller]
pub fn dies(host: &Host, name: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let data = host.path(name);
    let ran = host.refit(&[&["agent", "start", "--data-dir", data.to_str().unwrap()], arguments].concat());
    let Ran { code, stderr, .. } = &ran;
    let error = stderr.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>();
    assert!(error.len() == 1 && !stderr.contains("panicked"), "{ran:?}");
    (*code, error[0].into())
}

#[track_caller]
pub fn has_all(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}
