//! One pass against `curl … | tee >(sha256sum) | tar xz`: time, and the memory of a process that does nothing else.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use refit_update::{
    Download, HttpsOptions, HttpsSource, Interrupt, Layout, Profile, RealDisk, TransferLimits, install,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use server::{Asked, Connection, Server};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

#[path = "../tests/archive_support/server.rs"]
#[allow(dead_code)]
mod server;

const ROUNDS: usize = 5;
const MOST_TIMES: f64 = 1.1;
const MOST_MEMORY: u64 = 40 << 20;
/// An agent's size may not matter: what two runs differ by anyhow.
const SAME_MEMORY: u64 = 4 << 20;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [mode, url, ca, root] = arguments.as_slice()
        && mode == "install"
    {
        return updater(url, Path::new(ca), Path::new(root));
    }
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    hashes();
    let small = Archive::new(scratch.path(), 300 << 20);
    let (mut updater, mut synced, mut curl) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = 0;
    for round in 0..=ROUNDS {
        let ours = small.by_updater(scratch.path());
        let (theirs, until_synced) = small.by_curl(scratch.path());
        // The first round warms the cache of the file that is served.
        if round > 0 {
            updater.push(ours.0);
            curl.push(theirs);
            synced.push(until_synced);
            memory = memory.max(ours.1);
        }
    }
    let (updater, curl, synced) = (median(updater), median(curl), median(synced));
    let times = updater.as_secs_f64() / curl.as_secs_f64();
    println!("300 MB, median of {ROUNDS}:");
    println!("  updater, synced          {updater:>8.2?}");
    println!("  curl | tee | tar         {curl:>8.2?}   {times:.2}x of it (at most {MOST_TIMES}x)");
    let times_synced = updater.as_secs_f64() / synced.as_secs_f64();
    println!("  the same, and then sync  {synced:>8.2?}   {times_synced:.2}x of it");
    let large = Archive::new(scratch.path(), 1 << 30).by_updater(scratch.path()).1;
    println!(
        "peak memory: {:.1} MB for 300 MB, {:.1} MB for 1 GB (at most 40 MB, and the same)",
        mb(memory),
        mb(large)
    );
    assert!(times <= MOST_TIMES, "{times:.2}x");
    assert!(memory <= MOST_MEMORY && large <= MOST_MEMORY && large.abs_diff(memory) <= SAME_MEMORY);
}

/// The process that is measured.
fn updater(url: &str, ca: &Path, root: &Path) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let source =
        HttpsSource::new(tls, HttpsOptions { http_on_loopback: true, ..HttpsOptions::default() }).unwrap();
    let profile =
        Profile { updater_units: Vec::new(), suffix_drop_ins: Default::default(), ..Profile::refit() };
    let layout = Layout::new(root, &profile, None);
    let download = Download {
        source: &source,
        urls: &[url.to_owned()],
        limits: &TransferLimits::default(),
        interrupt: &Interrupt::never(),
        progress: &|_, _| {},
    };
    install(&RealDisk, &layout, &profile, &"1.2.3".parse().unwrap(), download).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("{}", peak.trim().trim_end_matches(" kB"));
}

struct Archive {
    server: Server,
    path: PathBuf,
}

impl Archive {
    /// An archive of about that many bytes, of real machine code: this program, again and again.
    fn new(scratch: &Path, bytes: u64) -> Self {
        let code = fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut once = GzEncoder::new(Vec::new(), Compression::fast());
        once.write_all(&code).unwrap();
        let times = bytes.div_ceil(once.finish().unwrap().len() as u64);
        let path = scratch.join(format!("{bytes}.tar.gz"));
        let encoder = GzEncoder::new(BufWriter::new(File::create(&path).unwrap()), Compression::fast());
        let mut tar = tar::Builder::new(encoder);
        let mut append = |name: &str, bytes: u64, body: &mut dyn Read| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes);
            header.set_mode(0o755);
            tar.append_data(&mut header, name, body).unwrap();
        };
        let whole = code.len() as u64 * times;
        append("refit/refit", whole, &mut Again { code: &code, at: 0 }.take(whole));
        append("refit/refitctl", 3, &mut b"ctl".as_slice());
        append("refit/refit-update", 6, &mut b"update".as_slice());
        append("refit/etc/systemd/refit.service", 6, &mut b"[Unit]".as_slice());
        tar.into_inner().unwrap().finish().unwrap().flush().unwrap();
        let mut file = File::open(&path).unwrap();
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let bytes = file.read(&mut buffer).unwrap();
            if bytes == 0 {
                break;
            }
            hash.update(&buffer[..bytes]);
        }
        let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let served = path.clone();
        Self { server: Server::start(move |asked, out| serve(asked, out, &served, &sha256)), path }
    }

    fn url(&self) -> String {
        self.server.url("/refit.tar.gz")
    }

    /// How long it took in a process of its own, and how much memory that process had.
    fn by_updater(&self, scratch: &Path) -> (Duration, u64) {
        let root = root(scratch);
        let began = Instant::now();
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["install", &self.url()])
            .args([self.server.ca().as_path(), root.path()])
            .output()
            .unwrap();
        let took = began.elapsed();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let peak: u64 = String::from_utf8(done.stdout).unwrap().trim().parse().unwrap();
        (took, peak << 10)
    }

    /// How long it took, and how long until the disk had it too.
    fn by_curl(&self, scratch: &Path) -> (Duration, Duration) {
        let root = root(scratch);
        let script = r#"set -o pipefail
            curl -sS --fail --noproxy '*' --cacert "$1" "$2" | tee >(sha256sum > "$3/sum") | tar xz -C "$3"; wait"#;
        let began = Instant::now();
        let done = Command::new("bash")
            .args(["-c", script, "bash"])
            .args([self.server.ca().to_str().unwrap(), &self.url(), root.path().to_str().unwrap()])
            .status()
            .unwrap();
        let took = began.elapsed();
        assert!(done.success());
        assert!(root.path().join("refit/refit").exists());
        sync(root.path());
        (took, began.elapsed())
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A directory to unpack into, when the disk has nothing left to do.
fn root(scratch: &Path) -> TempDir {
    sync(scratch);
    tempfile::tempdir_in(scratch).unwrap()
}

fn sync(path: &Path) {
    assert!(Command::new("sync").arg("-f").arg(path).status().unwrap().success());
}

struct Again<'a> {
    code: &'a [u8],
    at: usize,
}

impl Read for Again<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = (&self.code[self.at..]).read(buffer)?;
        self.at = (self.at + bytes) % self.code.len();
        Ok(bytes)
    }
}

fn serve(asked: &Asked, out: &mut dyn Connection, path: &Path, sha256: &str) {
    if asked.path.ends_with(".sha256") {
        let _ = write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 64\r\n\r\n{sha256}");
        return;
    }
    let mut file = File::open(path).unwrap();
    let total = file.metadata().unwrap().len();
    let from = asked.from() as u64;
    file.seek(SeekFrom::Start(from)).unwrap();
    let status = match from {
        0 => "200 OK".to_owned(),
        _ => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{total}", total - 1),
    };
    let _ = write!(out, "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", total - from);
    let mut buffer = vec![0; 256 << 10];
    while let Ok(bytes @ 1..) = file.read(&mut buffer) {
        if out.write_all(&buffer[..bytes]).is_err() {
            return;
        }
    }
}

/// Which SHA-256 is the faster one: `sha2` is used as long as it is no slower by much.
fn hashes() {
    let bytes = vec![7; 256 << 20];
    let began = Instant::now();
    std::hint::black_box(Sha256::digest(&bytes));
    let ours = began.elapsed();
    let hash = default_provider().cipher_suites.iter().find_map(|suite| {
        let suite = suite.tls13()?;
        (suite.common.hash_provider.output_len() == 32).then_some(suite.common.hash_provider)
    });
    let began = Instant::now();
    std::hint::black_box(hash.unwrap().hash(&bytes));
    println!("SHA-256 of 256 MB: sha2 {ours:.0?}, aws-lc {:.0?}", began.elapsed());
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
