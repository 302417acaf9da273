//! Real etcd processes on loopback, single or as a cluster, with TLS and users if a test asks for them.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::certificates::Certificates;
use crate::process::Process;
use crate::scratch;
use crate::wait::POLL_EVERY;

const READY_WITHIN: Duration = Duration::from_secs(20);
const STARTS: usize = 5;

/// A real etcd server on loopback that is gone with the test.
#[derive(Debug)]
pub struct Etcd {
    member: Member,
}

/// Options of an etcd to start.
#[derive(Debug, Default)]
pub struct EtcdBuilder<'a> {
    certificates: Option<&'a Certificates>,
    password: Option<String>,
}

/// Several real etcd servers that are one store; each can be lost and come back.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
}

impl Etcd {
    /// Starts one without authentication.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// One for all tests of the process: each takes a prefix of its own.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Etcd> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// Starts a special one.
    pub fn builder<'a>() -> EtcdBuilder<'a> {
        EtcdBuilder::default()
    }

    /// Host and port for clients.
    pub fn endpoint(&self) -> String {
        self.member.endpoint()
    }

    /// The same as a URL.
    pub fn client_url(&self) -> String {
        self.member.client_url()
    }

    /// Runs `etcdctl`, for administration that the code under test never does; panics if it fails.
    pub async fn ctl(&self, arguments: &[&str]) -> String {
        self.member.ctl(arguments).await
    }

    /// Has it ask for a user from now on, as [`EtcdBuilder::password`] says.
    pub async fn require_password(&self, password: &str) {
        self.member.ask_for(password).await;
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.member.process().pid()
    }

    /// Ends it as a crash would. What it has stored stays.
    pub fn kill(&mut self) {
        self.member.kill();
    }

    /// Starts it again with the same data and ports, and waits until it answers.
    pub async fn restart(&mut self) {
        self.member.kill();
        self.member.run();
        self.member.answers().await;
    }

    /// Stops it where it is: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.member.process().signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.member.process().signal(Signal::CONT);
    }
}

impl<'a> EtcdBuilder<'a> {
    /// Has it talk TLS only, and only with clients that have a certificate of the same authority.
    pub fn tls(mut self, certificates: &'a Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Has it ask for a user: `root` with this password may do everything, and `refit`, with the same
    /// password, may do so below `/refit/`.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Starts it and waits until it answers.
    pub async fn start(self) -> Etcd {
        let mut flags = vec!["--heartbeat-interval=10".into(), "--election-timeout=100".into()];
        if let Some(certificates) = self.certificates {
            flags.push("--client-cert-auth".into());
            flags.push(format!("--trusted-ca-file={}", certificates.ca().display()));
            flags.push(format!("--cert-file={}", certificates.server_cert().display()));
            flags.push(format!("--key-file={}", certificates.server_key().display()));
        }
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let [member] = start_all(scheme, &flags).await;
        if let Some(password) = self.password {
            member.ask_for(&password).await;
        }
        Etcd { member }
    }
}

impl EtcdCluster {
    /// Starts three members and waits until each of them answers.
    pub async fn start() -> Self {
        Self { members: start_all::<3>("http", &[]).await.into() }
    }

    /// Hosts and ports of all members, as in a store address.
    pub fn endpoints(&self) -> String {
        self.members.iter().map(Member::endpoint).collect::<Vec<_>>().join(",")
    }

    /// Host and port of one member.
    pub fn endpoint(&self, member: usize) -> String {
        self.members[member].endpoint()
    }

    /// Runs `etcdctl` with one member.
    pub async fn ctl(&self, member: usize, arguments: &[&str]) -> String {
        self.members[member].ctl(arguments).await
    }

    /// Ends a member as a crash would.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again with its data and waits until it answers.
    pub async fn restart(&mut self, member: usize) {
        self.members[member].kill();
        self.members[member].run();
        self.members[member].answers().await;
    }

    /// Starts a member again without waiting: without a majority it would not answer.
    pub fn run(&mut self, member: usize) {
        self.members[member].kill();
        self.members[member].run();
    }

    /// Stops a member where it is: its connections stay open and nobody answers.
    pub fn pause(&self, member: usize) {
        self.members[member].process().signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self, member: usize) {
        self.members[member].process().signal(Signal::CONT);
    }
}

/// Starts the members of a cluster; retries with other ports if one was taken meanwhile.
async fn start_all<const N: usize>(scheme: &'static str, flags: &[String]) -> [Member; N] {
    assert!(is_installed("etcd") && is_installed("etcdctl"), "etcd is not installed: run `make test-deps`");
    for _ in 0..STARTS {
        let mut members: [Member; N] = std::array::from_fn(|index| Member::new(index, scheme, flags));
        let cluster: Vec<String> = members.iter().map(Member::peer).collect();
        for member in &mut members {
            member.flags.push(format!("--initial-cluster={}", cluster.join(",")));
            member.run();
        }
        let mut started = true;
        for member in &mut members {
            started &= member.comes_up().await;
        }
        if started {
            return members;
        }
        eprintln!("{}", members[0].log_text());
    }
    panic!("etcd did not start in {STARTS} attempts");
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[derive(Debug)]
struct Member {
    scheme: &'static str,
    name: String,
    client: u16,
    peer: u16,
    health: u16,
    flags: Vec<String>,
    /// What `etcdctl` needs to get in.
    ctl_flags: Vec<String>,
    process: Option<Process>,
    directory: TempDir,
}

impl Member {
    fn new(index: usize, scheme: &'static str, flags: &[String]) -> Self {
        let [client, peer, health] = free_ports();
        let name = format!("m{index}");
        let directory = scratch::directory();
        let mut all = vec![
            format!("--name={name}"),
            format!("--data-dir={}", directory.path().join("data").display()),
            format!("--listen-client-urls={scheme}://127.0.0.1:{client}"),
            format!("--advertise-client-urls={scheme}://127.0.0.1:{client}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
            format!("--listen-metrics-urls=http://127.0.0.1:{health}"),
            "--initial-cluster-state=new".into(),
            "--logger=zap".into(),
            "--log-level=warn".into(),
        ];
        all.extend_from_slice(flags);
        let ctl_flags = flags.iter().filter_map(|flag| ctl_flag(flag)).collect();
        Self { scheme, name, client, peer, health, flags: all, ctl_flags, process: None, directory }
    }

    fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    fn client_url(&self) -> String {
        format!("{}://{}", self.scheme, self.endpoint())
    }

    fn peer(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer)
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn run(&mut self) {
        self.process = Some(Process::start("etcd", &self.flags, &self.log()));
    }

    fn kill(&mut self) {
        self.process = None;
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a member that was not killed")
    }

    /// Waits until it answers; false when it ended instead.
    async fn comes_up(&mut self) -> bool {
        let end = Instant::now() + READY_WITHIN;
        let process = self.process.as_mut().expect("a member that was started");
        while !is_healthy(self.health).await {
            if process.has_ended() {
                return false;
            }
            assert!(Instant::now() < end, "etcd does not answer within {READY_WITHIN:?}");
            tokio::time::sleep(POLL_EVERY).await;
        }
        true
    }

    async fn answers(&mut self) {
        assert!(self.comes_up().await, "etcd ended: {}", self.log_text());
    }

    async fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.client_url()));
        command.args(&self.ctl_flags).args(arguments);
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = run.await.expect("etcdctl runs").expect("etcdctl runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn ask_for(&self, password: &str) {
        let rights = ["role", "grant-permission", "refit", "readwrite", "--prefix=true", "/refit/"];
        self.ctl(&["role", "add", "refit"]).await;
        self.ctl(&rights).await;
        for user in ["root", "refit"] {
            self.ctl(&["user", "add", &format!("{user}:{password}")]).await;
            self.ctl(&["user", "grant-role", user, user]).await;
        }
        self.ctl(&["auth", "enable"]).await;
    }
}

/// The flag by which `etcdctl` gets what a flag of `etcd` names.
fn ctl_flag(flag: &str) -> Option<String> {
    let (name, file) = flag.split_once('=')?;
    let name = match name {
        "--trusted-ca-file" => "--cacert",
        "--cert-file" => "--cert",
        "--key-file" => "--key",
        _ => return None,
    };
    Path::new(file).is_file().then(|| format!("{name}={file}"))
}

fn free_ports<const N: usize>() -> [u16; N] {
    let taken: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    taken.map(|listener| listener.local_addr().expect("a bound port").port())
}

async fn is_healthy(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.contains("\"health\":\"true\"").then_some(())
    };
    tokio::time::timeout(Duration::from_secs(2), ask).await.ok().flatten().is_some()
}
