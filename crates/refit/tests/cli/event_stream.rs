//! A `refitctl` that keeps running, read line by line. Used by the tests of `--follow` and `watch`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use refit_testbed::{Ran, forget_settings};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Host, WITHIN, eventually};

/// One that runs, and ends with the test.
pub struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    pub fn start(host: &Host, arguments: &[&str]) -> Self {
        let mut command = Command::new(host.path("refitctl"));
        forget_settings(&mut command);
        command.args(arguments).env("REFIT_DATA_DIR", host.path("data"));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    pub fn line(&self) -> String {
        self.lines.recv_timeout(WITHIN).expect("a line")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; what it did since the last line that was read.
    pub fn ends(mut self) -> Ran {
        let (mut stdout, mut stderr, end) = (String::new(), String::new(), Instant::now() + WITHIN);
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => stdout += &format!("{line}\n"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("the command does not end: {error}\n{stdout}"),
            }
        }
        eventually("the command ends", || self.has_ended());
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
