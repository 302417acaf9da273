//! A real `refit server` process on loopback, with its administrator's `refitctl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::ran::{Ran, bounded};
use crate::{Process, eventually};

/// For a server that starts on a busy machine, beside others.
const TIMEOUT: Duration = Duration::from_secs(120);
const ANY_PORT: &str = "127.0.0.1:0";

/// A running `refit server` on ports of its own, and its administrator.
#[derive(Debug)]
pub struct Server {
    process: Process,
    line: Vec<String>,
    program: String,
    data: PathBuf,
    address: String,
}

/// What a host needs to join.
#[derive(Debug)]
pub struct Invitation {
    /// The secret that lets it in.
    pub token: String,
    /// How it knows the cluster.
    pub ca_pin: String,
}

impl Server {
    /// Starts the `refit` at `program` with its data in `data` and its log beside that, and waits until it answers.
    pub async fn start(program: &str, data: &Path, more: &[&str]) -> Self {
        Self::start_under(&[], program, data, more).await
    }

    /// The same by a command that becomes the server, like `taskset` or `env`.
    pub async fn start_under(command: &[&str], program: &str, data: &Path, more: &[&str]) -> Self {
        let directory = data.to_str().expect("a directory with a name in UTF-8");
        let fixed = [program, "server", "--diag-listen", ANY_PORT, "--data-dir", directory];
        let line: Vec<String> = [command, &fixed, more].concat().into_iter().map(str::to_owned).collect();
        let mut server = Self {
            process: launch(&line, data, ANY_PORT),
            line,
            program: program.into(),
            data: data.into(),
            address: String::new(),
        };
        server.answers().await;
        server
    }

    async fn answers(&mut self) {
        eventually("the server answers", TIMEOUT, || {
            assert!(!self.process.has_ended(), "the server ended:\n{}", self.log());
            let answer = self.ctl(&["status", "--format", "json"]);
            let status = if answer.code == Some(0) { answer.json() } else { Value::Null };
            let mut servers = status["servers"].as_array().into_iter().flatten();
            let this = servers.find(|server| server["answering"] == true);
            self.address = this.and_then(|this| this["address"].as_str()).unwrap_or_default().into();
            std::future::ready(!self.address.is_empty())
        })
        .await;
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills and restarts it at the same address, as a crash and a service manager would.
    pub async fn crash_and_restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.line, &self.data, &self.address);
        self.answers().await;
    }

    /// Runs `refitctl` as the administrator on its host.
    pub fn ctl(&self, arguments: &[&str]) -> Ran {
        Ran::of(bounded(&self.program).args(["ctl", "--data-dir"]).arg(&self.data).args(arguments))
    }

    /// The JSON output of a `refitctl` command that must succeed.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> Value {
        self.ctl(&[&["--format", "json"], arguments].concat()).json()
    }

    /// Lets hosts join: `more` goes to `refitctl nodes add`.
    #[track_caller]
    pub fn invite(&self, more: &[&str]) -> Invitation {
        let made = self.ask(&[&["nodes", "add"], more].concat());
        let text = |name: &str| made[name].as_str().expect("a token and a pin").to_owned();
        Invitation { token: text("token"), ca_pin: text("ca_pin") }
    }

    /// Host and port at which it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its log since the first start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.with_extension("log")).expect("the log of the server")
    }
}

fn launch(line: &[String], data: &Path, listen: &str) -> Process {
    let (program, arguments) = line.split_first().expect("a program");
    let listen = ["--listen", listen].map(str::to_owned);
    Process::start(program, &[arguments, &listen].concat(), &data.with_extension("log"))
}
