//! A child process that the kernel kills with the test process.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// A process that does not outlive the tests, even when those are killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

type Order = (Command, Sender<io::Result<Child>>);

/// The kernel ends a child when the thread that started it ends, and this one lasts as long as the
/// tests do.
static PARENT: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, taken) = mpsc::channel::<Order>();
    thread::spawn(move || {
        for (mut command, started) in taken {
            let _ = started.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

impl Process {
    /// Starts `program` with its output going to `log`.
    pub fn start(program: &str, arguments: &[String], log: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("a log file");
        let errors = output.try_clone().expect("a log file");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]).args(arguments);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let (started, child) = mpsc::channel();
        let parent = PARENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parent.send((command, started)).expect("the thread that starts processes");
        let child = child.recv().expect("the thread that starts processes");
        Self { child: child.unwrap_or_else(|error| panic!("setpriv cannot be started: {error}")) }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is gone.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("a running process");
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
