//! Runs a command with a time limit and a clean environment, and checks its exit code and output.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Longer than any command takes that a test waits for.
const SECONDS: &str = "60";

/// The result of a command, with the common assertions.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; none if it was killed.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Runs the command to its end.
    pub fn of(command: &mut Command) -> Self {
        command.output().expect("a command that can be started").into()
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The JSON output of a command that must succeed.
    #[track_caller]
    pub fn json(self) -> Value {
        let answer = self.good();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Standard error of a command that must exit with `code`: one error, no backtrace, and nothing on standard output.
    #[track_caller]
    pub fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.starts_with("error: ") && !self.stderr.contains("panicked"), "{self:?}");
        self.stderr
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// A command with a time limit and without the developer's own settings.
pub fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", SECONDS]).arg(program).stdin(Stdio::null());
    forget_settings(&mut command);
    command
}

/// Removes the developer's own settings from the environment of a command.
pub fn forget_settings(command: &mut Command) {
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REFIT_"));
    for (name, _) in ours {
        command.env_remove(name);
    }
}
