//! What the dashboard's pages take with a hundred thousand hosts, against the same pages with a thousand.
//!
//! `cargo bench -p refit --bench dashboard`; the server is a process of its own on the same machine.

mod records;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use records::{Outcome, reported};
use refit_identity::{CaPin, pinned_client_config};
use refit_testbed::{Server, directory};
use refit_types::{HostRecord, Labels};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// The fleets that are compared; the larger one is smaller by `REFIT_BENCH_HOSTS`.
const SMALL: u128 = 1_000;
const LARGE: u128 = 100_000;
const REQUESTS: usize = 300;
const WARM: usize = 20;
/// What takes a walk through the fleet is kept for less than this: who comes then waits for it.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(6);
const PAUSES: usize = 5;

const PAGES: [(&str, &str); 6] = [
    ("fleet", "/web/"),
    ("fleet, a page in the middle", "/web/?after=00000000-0000-0000-0000-0000000001f4"),
    ("hosts by a label that few have", "/web/?labels=labels.zone%20%3D%3D%20%22z7%22"),
    ("hosts by a name that none has", "/web/?q=no-such-host"),
    ("rollout", "/web/rollout"),
    ("audit", "/web/audit"),
];

fn host_record(n: u128) -> Outcome<HostRecord> {
    let mut labels = Labels::default();
    labels.insert("environment", if n.is_multiple_of(4) { "staging" } else { "prod" })?;
    labels.insert("zone", &format!("z{}", n % 499))?;
    labels.insert("rack", &format!("r{n}"))?;
    reported(n, if n.is_multiple_of(3) { "15.1.1" } else { "15.1.0" }, labels)
}

/// A browser that keeps its connection and its cookie.
struct Browser {
    stream: StreamOwned<ClientConnection, TcpStream>,
    host: String,
    cookie: String,
}

impl Browser {
    fn signed_in(server: &Server) -> Outcome<Self> {
        let pin: CaPin = server.invite(&[]).ca_pin.parse()?;
        let login = server.ask(&["web", "login"]);
        let address = login["url"].as_str().and_then(|url| url.strip_prefix("https://"));
        let address = address.ok_or("no address")?;
        let (host, path) = address.split_once('/').ok_or("no path")?;
        let tls =
            ClientConnection::new(Arc::new(pinned_client_config(pin)?), ServerName::try_from("localhost")?)?;
        let socket = TcpStream::connect(host)?;
        socket.set_nodelay(true)?;
        let stream = StreamOwned::new(tls, socket);
        let mut browser = Self { stream, host: host.to_owned(), cookie: String::new() };
        let (head, _) = browser.ask(&format!(
            "POST /{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\nContent-Length: 0\r\n\r\n"
        ))?;
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        browser.cookie = cookie.and_then(|cookie| cookie.split(';').next()).ok_or("no cookie")?.to_owned();
        Ok(browser)
    }

    fn get(&mut self, path: &str) -> Outcome<String> {
        let (host, cookie) = (&self.host, &self.cookie);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n");
        let (head, body) = self.ask(&request)?;
        match head.starts_with("HTTP/1.1 200") {
            true => Ok(body),
            false => Err(format!("{path}: {head}").into()),
        }
    }

    fn ask(&mut self, request: &str) -> Outcome<(String, String)> {
        self.stream.write_all(request.as_bytes())?;
        self.stream.flush()?;
        let (mut read, mut bytes) = (Vec::new(), [0; 65_536]);
        loop {
            let ends = read.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(ends) = ends {
                let head = String::from_utf8_lossy(&read[..ends]).into_owned();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(Ok(0), str::parse)?;
                if read.len() >= ends + 4 + length {
                    return Ok((head, String::from_utf8_lossy(&read[ends + 4..]).into_owned()));
                }
            }
            let more = self.stream.read(&mut bytes)?;
            read.extend(bytes.get(..more).filter(|more| !more.is_empty()).ok_or("the server hung up")?);
        }
    }
}

/// The median and the slowest of a hundred for each page, in milliseconds.
async fn measure(hosts: u128) -> Outcome<Vec<(f64, f64)>> {
    let folder = directory();
    let data = folder.path().join("data");
    records::store(&data, &(0..hosts).map(host_record).collect::<Outcome<Vec<_>>>()?).await?;
    let quiet = ["env", "REFIT_LOG=error"];
    let server = Server::start_under(&quiet, env!("CARGO_BIN_EXE_refit"), &data, &[]).await;
    let mut browser = Browser::signed_in(&server)?;
    let groups = serde_json::json!({
        "kind": "cluster_maintenance_config",
        "spec": { "agent_auto_update_groups": { "regular": [
            { "name": "staging", "agents": { "instance_labels_expression": "labels.environment == \"staging\"" } },
            { "name": "prod", "agents": { "instance_labels_expression": "labels.environment == \"prod\"" }, "requires": ["staging"] },
        ] } },
    });
    let file = folder.path().join("groups.json");
    std::fs::write(&file, groups.to_string())?;
    server.ask(&["create", &file.display().to_string()]);
    server.ask(&["autoupdate", "update", "--set-agent-version=15.1.1", "--allow-missing"]);
    let all = format!("<b id=\"host-count\">{hosts}</b>");
    let end = Instant::now() + Duration::from_secs(120);
    while !browser.get("/web/")?.contains(&all) {
        if Instant::now() > end {
            return Err("the fleet was not loaded".into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut measured = Vec::new();
    for (_, path) in PAGES {
        let mut took = Vec::with_capacity(REQUESTS);
        for n in 0..WARM + REQUESTS {
            let began = Instant::now();
            browser.get(path)?;
            if n >= WARM {
                took.push(began.elapsed().as_secs_f64() * 1000.0);
            }
        }
        took.sort_by(f64::total_cmp);
        measured.push((took[REQUESTS / 2], took[REQUESTS * 99 / 100]));
    }
    let mut took = Vec::new();
    for _ in 0..PAUSES {
        std::thread::sleep(FORGOTTEN_AFTER);
        let began = Instant::now();
        browser.get("/web/")?;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    took.sort_by(f64::total_cmp);
    measured.push((took[PAUSES / 2], took[PAUSES - 1]));
    Ok(measured)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let large = std::env::var("REFIT_BENCH_HOSTS").ok().and_then(|text| text.parse().ok()).unwrap_or(LARGE);
    let (few, many) = (measure(SMALL).await?, measure(large).await?);
    println!(
        "{:<38} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}",
        "milliseconds", "p50", "p50", "ratio", "p99", "p99", "ratio"
    );
    println!("{:<38} {large:>9} {SMALL:>9} {:>7} {large:>9} {SMALL:>9}", "hosts", "");
    let names = PAGES.iter().map(|(name, _)| *name).chain(["fleet, when nobody looked for a while"]);
    for (name, ((p50, p99), (few50, few99))) in names.zip(many.iter().zip(&few)) {
        println!(
            "{name:<38} {p50:>9.2} {few50:>9.2} {:>7.1} {p99:>9.2} {few99:>9.2} {:>7.1}",
            p50 / few50,
            p99 / few99
        );
    }
    Ok(())
}
