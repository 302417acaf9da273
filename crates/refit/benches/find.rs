//! What `find` costs against nginx with a static file of the same size: the same certificate type, the same
//! two workers on the same two cores, TLS 1.3, keep-alive, and the same line of wrk for both. And how late answers
//! are while another server joins and leaves the cluster, against a cluster at rest.
//!
//! `cargo bench -p refit --bench find`; with `REFIT_BENCH_STRICT=1` a missed bound is a failure.

#[allow(dead_code)]
mod records;
mod server_change;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use records::Outcome;
use refit_testbed::{Process, Signal};
use refit_types::{AgentRole, HostId, HostRecord};
use uuid::Uuid;

const HOSTS: usize = 100_000;
/// For server, nginx and wrk alike.
const CORES: &str = "0,1";
const CONNECTIONS: &str = "64";
/// Of each side in turn; the medians count.
const ROUNDS: usize = 5;
const WARM_UP: &str = "2s";
const ROUND: &str = "5s";
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// At least so much of nginx's requests a second, and at most so much of its processor time and its p99.
const LEAST_RATE: f64 = 1.2;
const MOST_CPU: f64 = 1.5;
const MOST_P99: f64 = 1.5;
/// The p99 while another server joins and leaves is at most so much of the p99 at rest.
const MOST_CHANGING_P99: f64 = 2.0;

/// Asks for known hosts at random, and tells what came of it in numbers.
const SCRIPT: &str = r#"
local requests = {}
function init(args)
  local tag = os.getenv("TAG")
  if tag and tag ~= "" then wrk.headers["If-None-Match"] = tag end
  for host in io.lines(os.getenv("HOSTS")) do
    requests[#requests + 1] = wrk.format("GET", "/v1/webapi/find?host=" .. host)
  end
  math.randomseed(os.time())
end
function request() return requests[math.random(#requests)] end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// One of the two that are compared.
struct Side {
    process: Process,
    port: u16,
    tag: String,
}

impl Side {
    fn new(process: Process, port: u16) -> Outcome<Self> {
        let end = Instant::now() + STARTS_WITHIN;
        loop {
            match fetch(port, &[]) {
                Ok(text) => {
                    let tag = text.lines().find_map(|line| {
                        line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("etag"))
                    });
                    let tag = tag.ok_or("an answer without an ETag")?.1.trim().to_owned();
                    return Ok(Self { process, port, tag });
                }
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Clock ticks of processor time that it and its children have used.
    fn ticks(&self) -> Outcome<u64> {
        let own = self.process.pid();
        let mut ticks = 0;
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            // The name of the program, in parentheses, may hold spaces.
            let fields: Vec<&str> =
                stat.rsplit_once(')').ok_or("no name in stat")?.1.split_whitespace().collect();
            if pid == own || fields[1].parse() == Ok(own) {
                ticks += fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
            }
        }
        Ok(ticks)
    }

    fn measure(&self, folder: &Path, tag: &str, long: &str, connections: &str) -> Outcome<Figures> {
        let before = self.ticks()?;
        let output = Command::new("taskset")
            .args(["-c", CORES, "wrk", "-t2", "-c", connections, "-d", long, "-s"])
            .arg(folder.join("find.lua"))
            .arg(format!("https://localhost:{}", self.port))
            .env("HOSTS", folder.join("hosts.txt"))
            .env("TAG", tag)
            .output()?;
        let ticks = self.ticks()? - before;
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
        let numbers: Vec<f64> =
            line.ok_or_else(|| text.clone())?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [requests, micros, p99, errors] = numbers[..] else { return Err(text.into()) };
        if errors > 0.0 || requests == 0.0 {
            return Err(format!("{errors} of {requests} requests failed:\n{text}").into());
        }
        Ok(Figures { rate: requests / micros * 1e6, cpu: ticks as f64 * 1e4 / requests, p99 })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // nginx ends its workers if it is asked to end, not if it is killed.
        self.process.signal(Signal::TERM);
        let end = Instant::now() + STARTS_WITHIN;
        while !self.process.has_ended() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Requests a second, and microseconds: of the server's processors for each request, and until 99 of 100
/// were answered.
#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    cpu: f64,
    p99: f64,
}

impl Figures {
    fn medians(of: &[Self]) -> Self {
        let median = |value: fn(&Self) -> f64| {
            let mut values: Vec<f64> = of.iter().map(value).collect();
            values.sort_unstable_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self { rate: median(|one| one.rate), cpu: median(|one| one.cpu), p99: median(|one| one.p99) }
    }
}

/// Head and body of what a side answers.
fn fetch(port: u16, with: &[&str]) -> Outcome<String> {
    let output = Command::new("curl")
        .args(["-sk", "--fail", "--http1.1"])
        .args(if with.is_empty() { &["-D", "-", "-o", "/dev/null"] } else { with })
        .arg(format!("https://localhost:{port}/v1/webapi/find"))
        .output()?;
    if output.status.success() { Ok(String::from_utf8(output.stdout)?) } else { Err("no answer yet".into()) }
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn fleet() -> Vec<HostRecord> {
    let now = Timestamp::now();
    let joined = || HostRecord::joined(HostId::new(Uuid::new_v4()), "web", vec![AgentRole::Node], now);
    (0..HOSTS).map(|_| joined()).collect()
}

/// Starts a server that finds the records of the fleet in its store, and has it advertise a version.
fn start_refit(data_dir: &Path, more: &[&str]) -> Outcome<Side> {
    let port = free_port()?;
    let refit = env!("CARGO_BIN_EXE_refit");
    let data = data_dir.display().to_string();
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "-c",
        CORES,
        refit,
        "server",
        "--listen",
        &listen,
        "--diag-listen",
        "127.0.0.1:0",
        "--data-dir",
        &data,
        "--find-requests-per-second",
        "0",
    ];
    let arguments: Vec<String> = [&arguments, more].concat().into_iter().map(str::to_owned).collect();
    let process = Process::start("taskset", &arguments, &data_dir.with_extension("log"));
    let side = Side::new(process, port)?;
    let end = Instant::now() + STARTS_WITHIN;
    loop {
        let status = Command::new(refit).args(["ctl", "status", "--data-dir", &data]).output()?;
        if String::from_utf8_lossy(&status.stdout).contains(&format!("{HOSTS}, 0 connected")) {
            break;
        }
        if Instant::now() > end {
            return Err(
                format!("the fleet was not loaded: {}", String::from_utf8_lossy(&status.stdout)).into()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // Every host is looked up, and told by its group.
    for change in [
        &["--set-agent-version=15.1.1", "--allow-missing"][..],
        &["--schedule", "regular", "--group", "all", "--add", "--set-window-hours=24"],
    ] {
        let made = Command::new(refit)
            .args(["ctl", "autoupdate", "update", "--data-dir", &data])
            .args(change)
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
        }
    }
    Ok(side)
}

fn start_nginx(folder: &Path, body: &str) -> Outcome<Side> {
    let port = free_port()?;
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::create_dir_all(folder.join("www/v1/webapi"))?;
    std::fs::write(folder.join("www/v1/webapi/find"), body)?;
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-keyout", &at("key.pem"), "-out", &at("cert.pem")])
        .output()?;
    if !made.status.success() {
        return Err(String::from_utf8(made.stderr)?.into());
    }
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {};", at(name)))
        .join("\n");
    // Its own defaults, but for what would only slow it down: no log of requests, and connections that last.
    let configuration = format!(
        "user root; worker_processes 2; daemon off; pid {}; error_log {};\n\
        events {{}}\n\
        http {{ access_log off; keepalive_requests 1000000000; default_type application/json;\n{temporary}\n\
        server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;\n\
        root {}; add_header cache-control no-cache; }} }}\n",
        at("nginx.pid"),
        at("nginx.log"),
        at("cert.pem"),
        at("key.pem"),
        at("www")
    );
    let path: PathBuf = folder.join("nginx.conf");
    std::fs::write(&path, configuration)?;
    let arguments = ["-c", CORES, "/usr/sbin/nginx", "-c", &at("nginx.conf"), "-e", &at("nginx.log")];
    let process = Process::start("taskset", &arguments.map(str::to_owned), &folder.join("nginx.out"));
    Side::new(process, port)
}

/// What the ratio of two figures must be.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

fn heading(what: &str, ours: &str, theirs: &str) {
    println!("{what:<60} {ours:>10} {theirs:>10} {:>7}", "ratio");
}

/// Prints two figures and whether their ratio is as wanted.
fn report(what: &str, ours: f64, theirs: f64, bound: Bound) -> bool {
    let ratio = ours / theirs;
    let (holds, wanted) = match bound {
        Bound::AtLeast(least) => (ratio >= least, format!("want at least {least:.1}")),
        Bound::AtMost(most) => (ratio <= most, format!("want at most {most:.1}")),
    };
    let verdict = if holds { "" } else { "  MISSED" };
    println!("{:<60} {ours:>10.1} {theirs:>10.1} {ratio:>7.2}{verdict}", format!("{what} ({wanted})"));
    holds
}

#[tokio::main]
async fn main() -> Outcome<ExitCode> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let data_dir = folder.join("data");
    let host_records = fleet();
    records::store(&data_dir, &host_records).await?;
    let lines: String = host_records.iter().map(|host_record| format!("{}\n", host_record.host_id)).collect();
    std::fs::write(folder.join("hosts.txt"), lines)?;
    std::fs::write(folder.join("find.lua"), SCRIPT)?;

    let refit = start_refit(&data_dir, &[])?;
    let body = fetch(refit.port, &["-o", "-"])?;
    let nginx = start_nginx(folder, &body)?;

    heading(&format!("find, {HOSTS} hosts, {} bytes", body.len()), "Refit", "nginx");
    let mut held = true;
    for conditional in [false, true] {
        let sides = [&refit, &nginx];
        let tag = |side: &Side| if conditional { side.tag.clone() } else { String::new() };
        for side in sides {
            side.measure(folder, &tag(side), WARM_UP, CONNECTIONS)?;
        }
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (side, figures) in sides.iter().zip(&mut rounds) {
                figures.push(side.measure(folder, &tag(side), ROUND, CONNECTIONS)?);
            }
        }
        let [ours, theirs] = rounds.map(|figures| Figures::medians(&figures));
        let what = if conditional { "304" } else { "200" };
        let mut line = |name: &str, value: fn(&Figures) -> f64, bound: Bound| {
            held &= report(&format!("{what}: {name}"), value(&ours), value(&theirs), bound);
        };
        line("requests/s", |one| one.rate, Bound::AtLeast(LEAST_RATE));
        line("server CPU for each, µs", |one| one.cpu, Bound::AtMost(MOST_CPU));
        line("p99, µs", |one| one.p99, Bound::AtMost(MOST_P99));
    }
    drop((refit, nginx));

    let [at_rest, changing] = server_change::measure(folder, host_records).await?;
    heading(&format!("find, {HOSTS} hosts, etcd"), "changing", "at rest");
    let p99 = "p99 while a server joins and leaves, µs";
    held &= report(p99, changing.p99, at_rest.p99, Bound::AtMost(MOST_CHANGING_P99));
    let strict = std::env::var_os("REFIT_BENCH_STRICT").is_some_and(|value| value == "1");
    Ok(if strict && !held { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
