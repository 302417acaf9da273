//! A real process that obeys signals, re-executes the path it was started by and keeps its lock.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use refit_agent::{ExecPath, PidFile, SignalRequest, Signals, reexec};
use refit_testbed::{Process, Signal, eventually};
use refit_types::DataDir;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);
/// Set for the process that stands in for an agent: its data directory.
const STAND_IN: &str = "TEST_DATA_DIR";

fn note(data: &DataDir, line: &str) {
    let path = data.root().with_extension("notes");
    let mut notes = fs::File::options().create(true).append(true).open(path).unwrap();
    writeln!(notes, "{line}").unwrap();
}

/// Not a test: the agent that the tests below start, from this same file.
#[tokio::test]
async fn stand_in() {
    let Some(root) = std::env::var_os(STAND_IN) else { return };
    let data = DataDir::new(root);
    let started = ExecPath::this_process().unwrap();
    let lock = match PidFile::take(&data) {
        Ok(lock) => lock,
        Err(error) => return note(&data, &format!("refused {error}")),
    };
    let stdin = fs::read_link("/proc/self/fd/0").unwrap();
    let sockets = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut signals = Signals::listen().unwrap();
    note(&data, &format!("started {} stdin {}", started.path().display(), stdin.display()));
    loop {
        match signals.next().await {
            SignalRequest::Drain => break,
            SignalRequest::Reload => {
                let Err(error) = reexec(&started, &lock);
                note(&data, &format!("stayed {error}"));
            }
        }
    }
    note(&data, "drained");
    drop((lock, sockets));
    std::process::exit(0);
}

struct Agent {
    process: Process,
    data: DataDir,
    link: PathBuf,
}

impl Agent {
    fn start(directory: &TempDir) -> Self {
        let data = DataDir::new(directory.path().join("data"));
        let link = directory.path().join("agent");
        if !link.exists() {
            symlink(std::env::current_exe().unwrap(), &link).unwrap();
        }
        let variable = format!("{STAND_IN}={}", data.root().display());
        let arguments = [&variable, link.to_str().unwrap(), "--exact", "stand_in", "--nocapture"];
        let arguments = arguments.map(ToString::to_string);
        let process = Process::start("env", &arguments, &directory.path().join("log"));
        Self { process, data, link }
    }

    fn notes(&self) -> Vec<String> {
        let text = fs::read_to_string(self.data.root().with_extension("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn wait_for(&self, count: usize, start: &str) {
        let what = format!("{count} notes that begin with {start:?}");
        eventually(&what, SOON, async || {
            self.notes().iter().filter(|note| note.starts_with(start)).count() >= count
        })
        .await;
    }

    fn pid_file(&self) -> String {
        fs::read_to_string(self.data.agent_pid()).unwrap().trim().to_owned()
    }

    fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.pid())).unwrap().count()
    }
}

#[tokio::test]
async fn a_reload_keeps_the_process_its_path_and_its_lock() {
    let directory = refit_testbed::directory();
    let agent = Agent::start(&directory);
    agent.wait_for(1, "started").await;
    let pid = agent.process.pid().to_string();
    let inode = fs::metadata(agent.data.agent_pid()).unwrap().ino();
    assert_eq!(agent.pid_file(), pid);
    for reload in 1..4 {
        agent.process.signal(Signal::HUP);
        agent.wait_for(reload + 1, "started").await;
        assert_eq!(agent.pid_file(), pid);
        assert_eq!(fs::metadata(agent.data.agent_pid()).unwrap().ino(), inode, "the lock was given up");
        let refused = PidFile::take(&agent.data).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("another agent (pid {pid}) uses")), "{refused}");
    }
    let expected = format!("started {} stdin /dev/null", agent.link.display());
    assert!(agent.notes().iter().all(|note| *note == expected), "{:?}", agent.notes());
    let files = agent.open_files();
    agent.process.signal(Signal::HUP);
    agent.wait_for(5, "started").await;
    assert_eq!(agent.open_files(), files, "files leak from image to image");
}

#[tokio::test]
async fn a_reload_takes_what_the_link_points_to_now() {
    let directory = refit_testbed::directory();
    let mut agent = Agent::start(&directory);
    agent.wait_for(1, "started").await;

    fs::remove_file(&agent.link).unwrap();
    agent.process.signal(Signal::HUP);
    agent.wait_for(1, "stayed").await;
    let stayed = agent.notes().pop().unwrap();
    assert!(stayed.contains(": No such file"), "{stayed}");
    assert!(PidFile::take(&agent.data).is_err(), "it still holds its lock");
    let stdin = fs::read_link(format!("/proc/{}/fd/0", agent.process.pid())).unwrap();
    assert_eq!(stdin, Path::new("/dev/null"), "programs that it starts must not get the lock");

    let next = directory.path().join("next");
    let notes = agent.data.root().with_extension("notes");
    let script = format!(
        "#!/bin/sh\necho \"next $$ $0 $* $({})\" >> {}\nexec sleep infinity\n",
        format_args!("[ ${STAND_IN} = {} ] && echo same", agent.data.root().display()),
        notes.display()
    );
    fs::write(&next, script).unwrap();
    fs::set_permissions(&next, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    symlink(&next, &agent.link).unwrap();
    agent.process.signal(Signal::HUP);
    agent.wait_for(1, "next").await;
    let pid = agent.process.pid();
    let expected = format!("next {pid} {} --exact stand_in --nocapture same", agent.link.display());
    assert_eq!(agent.notes().pop().unwrap(), expected);
    let refused = PidFile::take(&agent.data).unwrap_err().to_string();
    assert!(refused.contains(&format!("pid {pid}")), "the lock is held from image to image: {refused}");
    agent.process.kill();
    PidFile::take(&agent.data).unwrap();
}

#[tokio::test]
async fn many_reloads_at_once_end_nobody() {
    let directory = refit_testbed::directory();
    let mut agent = Agent::start(&directory);
    agent.wait_for(1, "started").await;
    for _ in 0..500 {
        agent.process.signal(Signal::HUP);
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
    assert!(!agent.process.has_ended());
    let count = agent.notes().len();
    agent.process.signal(Signal::HUP);
    agent.wait_for(count + 1, "started").await;
    assert!(!agent.process.has_ended());
}

#[tokio::test]
async fn an_end_is_clean_and_a_second_agent_is_refused() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = refit_testbed::directory();
        let mut first = Agent::start(&directory);
        first.wait_for(1, "started").await;
        let mut second = Agent::start(&directory);
        second.wait_for(1, "refused another agent").await;
        eventually("the second ends", SOON, || std::future::ready(second.process.has_ended())).await;
        assert!(Path::new(&first.data.agent_pid()).exists());
        first.process.signal(signal);
        first.wait_for(1, "drained").await;
        eventually("the first ends", SOON, || std::future::ready(first.process.has_ended())).await;
        assert!(!first.data.agent_pid().exists());
    }
}

#[tokio::test]
async fn a_killed_agent_leaves_no_lock() {
    let directory = refit_testbed::directory();
    let mut agent = Agent::start(&directory);
    agent.wait_for(1, "started").await;
    agent.process.kill();
    assert!(agent.data.agent_pid().exists());
    PidFile::take(&agent.data).unwrap();
}
