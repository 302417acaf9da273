//! `refit demo`, as somebody runs it who has just built it, and what is left of it.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use refit_testbed::{Signal, directory, eventually};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");
const PATIENCE: Duration = Duration::from_secs(120);
/// A version that does not run is given more than a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(240);

/// The program without what debuggers need: it is copied for every host.
fn program() -> &'static Path {
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
struct Demo {
    child: Child,
    folder: TempDir,
    temporary: PathBuf,
}

impl Demo {
    /// For somebody who has settings of a real cluster, which are none of its business.
    fn start(arguments: &[&str]) -> Self {
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

    fn told(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    async fn says(&self, words: &str) {
        let what = format!("{words:?} in {}", self.folder.path().display());
        eventually(&what, PATIENCE, async || self.told("out").contains(words)).await;
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Its exit code and what it told, by both ways.
    async fn ends(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        eventually("the end of the demonstration", LONG_PATIENCE, || {
            status = self.child.try_wait().unwrap();
            std::future::ready(status.is_some())
        })
        .await;
        (status.unwrap().code(), self.told("out") + &self.told("err"))
    }

    /// What still runs of it: everything that it starts has its directory in its arguments.
    fn runs(&self) -> Vec<String> {
        let own = self.temporary.to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(own)).collect()
    }

    #[track_caller]
    fn left_nothing(&self) {
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

/// Where each of these begins, which are there in this order.
#[track_caller]
fn in_order(told: &str, lines: &[&str]) {
    let mut from = 0;
    for line in lines {
        let found = told[from..].find(line);
        let Some(found) = found else { panic!("{line:?} is not there, or too early:\n{told}") };
        from += found + line.len();
    }
}

#[tokio::test]
async fn every_host_gets_the_new_version_in_the_order_of_the_groups() {
    let mut demo = Demo::start(&["--once", "--hosts", "3"]);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(0), "{told}");
    in_order(
        &told,
        &[
            "/web",
            " ctl --data-dir ",
            "all hosts have joined, and run 1.0.0",
            "canary1: 1.0.0 -> 1.1.0",
            "canary1: runs 1.1.0, and proves it for 5 s",
            "canary1: upgraded",
            "canary: succeeded",
            "staging1: 1.0.0 -> 1.1.0",
            "staging1: upgraded",
            "staging: succeeded",
            "production1: 1.0.0 -> 1.1.0",
            "production1: upgraded",
            "production: succeeded",
            "All 3 hosts run 1.1.0",
        ],
    );
    let first = |words: &str| told.find(words).unwrap();
    assert!(first("canary: succeeded") < first("  staging1: "), "{told}");
    assert!(first("staging: succeeded") < first("  production1: "), "{told}");
    assert!(!told.contains('\u{1b}'), "this is no terminal");
    demo.left_nothing();
}

#[tokio::test]
async fn a_version_that_does_not_run_is_undone_and_stops_the_rollout() {
    let mut demo = Demo::start(&["--once", "--hosts", "3", "--break", "one"]);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(1), "{told}");
    in_order(
        &told,
        &[
            "canary1: 1.0.0 -> 1.1.0",
            "staging: active",
            "staging1: tries 1.1.0: up to 60 s",
            "staging1 was told to upgrade to 1.1.0.",
            "at the step \"health\": no agent answers after 60 s.",
            "So staging1 runs 1.0.0 again",
            "The group staging halted: 1 of 1 failed, limit 0%.",
            "Spared, still on 1.0.0, never told to upgrade: production1.",
            "On 1.1.0, because it works there: canary1.",
        ],
    );
    assert!(!told.contains("production: active") && !told.contains("staging1: 1.0.0 -> 1.1.0"), "{told}");
    demo.left_nothing();
}

#[tokio::test]
async fn who_interrupts_it_finds_nothing_left_behind() {
    let mut early = Demo::start(&["--hosts", "50"]);
    early.says("This brings 50 hosts").await;
    early.signal(Signal::INT);
    let (code, told) = early.ends().await;
    assert_eq!(code, Some(130), "{told}");
    early.left_nothing();

    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("  canary1: ").await;
    assert!(
        demo.runs().len() >= 7,
        "a server, and a supervisor and an agent on each host: {:?}",
        demo.runs()
    );
    demo.signal(Signal::INT);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(130), "{told}");
    demo.left_nothing();
}

#[tokio::test]
async fn it_stays_until_it_is_told_to_end() {
    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("Ctrl-C ends all of it.").await;
    let place = std::fs::read_dir(&demo.temporary).unwrap().next().unwrap().unwrap().path();
    let status =
        Command::new(program()).args(["ctl", "--data-dir"]).arg(place.join("server")).arg("status").output();
    assert!(status.unwrap().status.success(), "it can be asked");
    demo.signal(Signal::TERM);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(0), "{told}");
    demo.left_nothing();
}

#[tokio::test]
async fn nothing_outlives_it_however_it_ends() {
    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("  canary1: ").await;
    assert!(demo.runs().len() >= 7, "{:?}", demo.runs());
    demo.signal(Signal::KILL);
    demo.ends().await;
    eventually("the end of all that it started", PATIENCE, async || demo.runs().is_empty()).await;
}

#[test]
fn it_is_told_what_it_can_do() {
    for (arguments, words) in
        [(&["--hosts", "2"][..], "3..=50"), (&["--hosts", "51"], "3..=50"), (&["--break", "all"], "one")]
    {
        let refused = Command::new(REFIT).arg("demo").args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains(words), "{told}");
    }
}
