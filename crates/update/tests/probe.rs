//! An agent that is asked over HTTP, as a real process with a real server in it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use refit_types::Version;
use refit_update::{Agent, Condition, HostAgent, IdentityFacts, Layout, Profile, Readiness};
use tempfile::TempDir;

/// Where the process that is made of this test finds what it is to answer.
const MODE: &str = "PROBED_AGENT_MODE";
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test: what a copy of this program does as the agent. Its listener is its standard input, as an agent that
/// hands over to the next one gives it its listeners.
#[test]
fn the_agent_itself() {
    let Some(mode) = std::env::var_os(MODE) else { return };
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    loop {
        let mode = fs::read_to_string(&mode).unwrap();
        // What does not listen is not to take a question away from another that does.
        if mode == "deaf" {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let (asking, _) = listener.accept().unwrap();
        std::thread::spawn(move || answer(asking, &mode));
    }
}

fn answer(mut asking: TcpStream, mode: &str) {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        asking.read_exact(&mut byte).unwrap();
        asked.push(byte[0]);
    }
    assert!(asked.starts_with(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked:?}");
    let body = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let answer = match mode {
        "ready" => body("200 OK", "{\"status\":\"ok\"}"),
        "starting" => body("503 Service Unavailable", "{\"status\":\"teleport is\\nstarting\"}"),
        "text" => body("400 Bad Request", "<b>\u{7}no</b>"),
        "silent" => String::new(),
        "hangs-up" => return,
        "huge" => loop {
            if asking.write_all(b"X-Padding: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n").is_err() {
                return;
            }
        },
        "nonsense" => "SSH-2.0-OpenSSH_9.2\r\n\r\n".into(),
        other => panic!("{other}"),
    };
    asking.write_all(answer.as_bytes()).unwrap();
    let _ = asking.read(&mut [0]);
}

struct Host {
    folder: TempDir,
    layout: Layout,
    agent: HostAgent,
    listener: TcpListener,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Host {
    fn new(pid_file: &str) -> Self {
        let folder = refit_testbed::directory();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/readyz", listener.local_addr().unwrap());
        let readiness = Readiness::Http { url, pid_file: pid_file.into() };
        let profile = Profile { readiness, ..Profile::refit() };
        let layout = Layout::new(folder.path(), &profile, None);
        fs::create_dir_all(layout.versions()).unwrap();
        fs::create_dir_all(folder.path().join("run")).unwrap();
        let agent = HostAgent::new(&layout, &profile);
        Self { folder, layout, agent, listener }
    }

    fn mode(&self, version: &str) -> PathBuf {
        self.folder.path().join(format!("mode-{version}"))
    }

    fn set(&self, version: &str, mode: &str) {
        let new = self.folder.path().join("mode.new");
        fs::write(&new, mode).unwrap();
        fs::rename(new, self.mode(version)).unwrap();
    }

    /// Runs an agent of that version, and names it in the file at that path.
    fn run(&self, version: &str, mode: &str, pid_file: &Path) -> Running {
        let folder = self.layout.version(&version.parse().unwrap()).join("bin");
        fs::create_dir_all(&folder).unwrap();
        let binary = folder.join("agent");
        if !binary.exists() {
            // By another process: a file that a fork of this one has open for writing cannot be run.
            let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status();
            assert!(copied.unwrap().success());
        }
        self.run_binary(&binary, version, mode, pid_file)
    }

    fn run_binary(&self, binary: &Path, version: &str, mode: &str, pid_file: &Path) -> Running {
        self.set(version, mode);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(binary)
            .args(["--exact", "the_agent_itself", "--nocapture"])
            .env(MODE, self.mode(version))
            .stdin(Stdio::from(OwnedFd::from(self.listener.try_clone().unwrap())))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        fs::write(pid_file, format!("{}\n", child.id())).unwrap();
        Running(child)
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Condition) -> bool) -> Condition {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.agent.condition();
            match found {
                Some(condition) if holds(&condition) => return condition,
                _ => assert!(Instant::now() < end, "{what}: {found:?}"),
            }
        }
    }

    fn absolute(&self) -> PathBuf {
        self.folder.path().join("run/agent.pid")
    }
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn an_agent_is_what_its_process_is_and_ready_when_it_says_so() {
    let host = Host::new("/run/agent.pid");
    assert_eq!(host.agent.condition(), None);
    let running = host.run("1.0.0", "ready", &host.absolute());
    let found = host.until("ready", |found| found.connected);
    assert_eq!((&found.version, &found.reason), (&version("1.0.0"), &None));
    assert!(found.start.0.starts_with(&format!("{} ", running.0.id())), "{found:?}");
    for _ in 0..20 {
        assert_eq!(host.agent.condition().as_ref(), Some(&found));
    }
    assert_eq!(host.agent.identity(), IdentityFacts::default());

    for (mode, said) in [
        ("starting", "answers 503: teleport is starting"),
        ("text", "answers 400: <b> no</b>"),
        ("hangs-up", "does not answer: it hung up"),
        ("nonsense", "does not answer: what it answers is not HTTP"),
    ] {
        host.set("1.0.0", mode);
        // One more question may be answered as before: the mode is read before it is waited for.
        let found =
            host.until(mode, |found| found.reason.as_ref().is_some_and(|reason| reason.contains(said)));
        assert!(!found.connected && found.version == version("1.0.0"), "{found:?}");
    }
    drop(running);
    assert_eq!(host.agent.condition(), None, "a process that is gone is in no condition");
}

#[test]
fn a_server_that_never_ends_its_answer_is_not_waited_for() {
    let host = Host::new("agent.pid");
    let _running = host.run("1.0.0", "silent", &host.layout.data().join("agent.pid"));
    let found = host.until("silent", |found| found.version == version("1.0.0"));
    assert!(!found.connected && found.reason.unwrap().contains("does not answer: it is silent"));
    host.set("1.0.0", "huge");
    let found = host.until("huge", |found| !found.reason.as_ref().unwrap().contains("silent"));
    assert!(!found.connected && found.reason.as_ref().unwrap().contains("too long"), "{found:?}");
}

#[test]
fn nobody_answers_for_the_process_that_is_to_be_ready() {
    let host = Host::new("/run/agent.pid");
    let old = host.run("1.0.0", "ready", &host.absolute());
    let before = host.until("the old one", |found| found.connected);

    let new = host.run("1.1.0", "deaf", &host.absolute());
    let found = host.until("the new one", |found| found.version == version("1.1.0"));
    let reason = found.reason.unwrap();
    assert!(
        !found.connected && reason.contains(&format!("another process than {} answers", new.0.id())),
        "{reason}"
    );
    assert_ne!(found.start, before.start);

    host.set("1.0.0", "deaf");
    drop(old);
    host.set("1.1.0", "ready");
    let found = host.until("the new one is ready", |found| found.connected);
    assert_eq!((found.version, found.reason), (version("1.1.0"), None));
}

#[test]
fn what_names_no_process_of_an_installed_version_is_in_no_condition() {
    let host = Host::new("/run/agent.pid");
    let file = host.absolute();
    let _running = host.run("1.0.0", "ready", &file);
    host.until("ready", |found| found.connected);
    let good = fs::read_to_string(&file).unwrap();
    let own = std::process::id().to_string();
    let far = format!("{}{}", " ".repeat(5000), good);
    for bad in ["", "\n", "agent", "-1", "0", "1x", "99999999999", "4294967295", "\u{0}", own.as_str(), &far]
    {
        fs::write(&file, bad).unwrap();
        assert_eq!(host.agent.condition(), None, "{bad:?}");
    }
    fs::write(&file, b"\xff\xfe").unwrap();
    assert_eq!(host.agent.condition(), None);
    fs::remove_file(&file).unwrap();
    assert_eq!(host.agent.condition(), None);
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(host.agent.condition(), None, "a pipe that nobody writes to");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(host.agent.condition(), None, "a directory");
    fs::remove_dir(&file).unwrap();

    fs::write(&file, &good).unwrap();
    host.until("ready again", |found| found.connected);
    fs::remove_file(host.layout.version(&version("1.0.0")).join("bin/agent")).unwrap();
    assert_eq!(host.agent.condition(), None, "a binary that was deleted");
}

#[test]
fn an_agent_whose_address_is_nobodys_is_not_ready() {
    let mut host = Host::new("/run/agent.pid");
    let _running = host.run("1.0.0", "deaf", &host.absolute());
    host.until("runs", |found| found.version == version("1.0.0"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let readiness =
        Readiness::Http { url: format!("http://{nobody}/readyz"), pid_file: "/run/agent.pid".into() };
    host.agent = HostAgent::new(&host.layout, &Profile { readiness, ..Profile::refit() });
    let found = host.agent.condition().unwrap();
    assert!(!found.connected && found.reason.unwrap().contains("does not answer"));
}

/// An agent answers on its socket with one line.
fn answers(host: &Host, line: &str) -> Option<Condition> {
    let (path, layout) = (host.layout.data().join("answers.sock"), &host.layout);
    let _ = fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let line = line.to_owned();
    let answering = std::thread::spawn(move || listener.accept().unwrap().0.write_all(line.as_bytes()));
    let readiness = Readiness::Socket("answers.sock".into());
    let condition = HostAgent::new(layout, &Profile { readiness, ..Profile::refit() }).condition();
    answering.join().unwrap().unwrap();
    condition
}

/// The agent's clock may be anywhere: what it says of a start is only compared with what it said of another.
#[test]
fn a_start_is_known_by_its_session_and_in_older_agents_by_what_they_say() {
    let host = Host::new("agent.pid");
    let line = |session: &str, started_at: &str| {
        let session = if session.is_empty() { String::new() } else { format!(r#","session":"{session}""#) };
        format!(r#"{{"version":"1.0.0","pid":7,"started_at":"{started_at}","connected":true{session}}}"#)
    };
    let start = |session: &str, started_at: &str| answers(&host, &line(session, started_at)).unwrap().start;
    let (early, late) = ("1999-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
    assert_eq!(start("a", early), start("a", late), "the clock of the agent does not matter");
    assert_ne!(start("a", early), start("b", early));
    assert_eq!(start("", early), start("", early));
    assert_ne!(start("", early), start("", late));
    let least = r#"{"version":"1.0.0","connected":false}"#;
    assert!(!answers(&host, least).unwrap().connected);
}
