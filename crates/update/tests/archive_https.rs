//! Downloads over real HTTPS from a server that fails.

#![allow(clippy::unwrap_used)]

mod archive_support;

use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use archive_support::server::{Asked, Connection, Server, client};
use archive_support::*;
use refit_update::archive::{ResumingReader, SourceErrorKind};
use refit_update::{
    HttpsOptions, HttpsSource, InstallError, Installed, Interrupt, Patience, RealDisk, Source, SourceError,
    TransferLimits,
};

const PATH: &str = "/v1/artifacts/refit.tar.gz";
const SECRET: &str = "?token=secret";

fn options() -> HttpsOptions {
    HttpsOptions {
        connect: Duration::from_secs(10),
        silence: Duration::from_millis(500),
        pause: Duration::from_millis(1),
        http_on_loopback: true,
    }
}

fn patience() -> Patience {
    Patience::new(Duration::from_secs(600), Interrupt::never())
}

fn source(server: &Server) -> HttpsSource {
    HttpsSource::new(server.trust(), options()).unwrap()
}

fn fetch(server: &Server, host: &Host) -> Result<Installed, InstallError> {
    let url = server.url(PATH) + SECRET;
    let source = source(server);
    let result = host.install_from(&RealDisk, &source, &[url], &TransferLimits::default());
    if let Err(error) = &result {
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        assert!(host.is_bare(), "{error}: {:#?}", host.tree());
    }
    result
}

fn head(out: &mut dyn Connection, status: &str, headers: &[String]) {
    let _ = write!(out, "HTTP/1.1 {status}\r\nConnection: close\r\n");
    for header in headers {
        let _ = write!(out, "{header}\r\n");
    }
    let _ = out.write_all(b"\r\n");
}

/// A server as it should be: ranges, `If-Range`, `ETag`. Sends at most that many bytes of a body.
fn serve(asked: &Asked, out: &mut dyn Connection, archive: &[u8], most: usize) {
    if asked.path.starts_with(&format!("{PATH}.sha256")) {
        let body = sha256(archive);
        head(out, "200 OK", &[format!("Content-Length: {}", body.len())]);
        let _ = out.write_all(body.as_bytes());
        return;
    }
    let etag = format!("\"{}\"", sha256(archive));
    let wanted = asked.header("if-range").is_none_or(|if_range| if_range == etag);
    let from = if wanted { asked.from() } else { 0 };
    let body = &archive[from..];
    let mut headers = vec![format!("Content-Length: {}", body.len()), format!("ETag: {etag}")];
    if from > 0 {
        headers.push(format!("Content-Range: bytes {from}-{}/{}", archive.len() - 1, archive.len()));
        head(out, "206 Partial Content", &headers);
    } else {
        head(out, "200 OK", &headers);
    }
    let _ = out.write_all(&body[..most.min(body.len())]);
}

fn large() -> Vec<u8> {
    let mut members = good();
    members[1] = file("refit/refit", noise(2 << 20));
    archive(&members)
}

#[test]
fn an_archive_comes_through_breaks_by_range_and_if_range() {
    let archive = large();
    let expected = sha256(&archive);
    let served = archive.clone();
    let server = Server::start(move |asked, out| serve(asked, out, &served, 300_000));
    let host = Host::new();
    assert_eq!(fetch(&server, &host).unwrap().sha256, expected);
    assert_eq!(fs::read(host.directory().join("bin/refit")).unwrap(), noise(2 << 20));
    let asked = server.asked();
    assert_eq!(asked[0].path, format!("{PATH}.sha256{SECRET}"));
    assert_eq!((asked[1].path.clone(), asked[1].header("range")), (format!("{PATH}{SECRET}"), None));
    assert_eq!(asked[2].from(), archive.len() - 4);
    let resumed: Vec<_> = asked[3..].iter().collect();
    assert_eq!(resumed.len(), archive.len() / 300_000, "{resumed:?}");
    for (number, asked) in resumed.iter().enumerate() {
        assert_eq!(asked.from(), 300_000 * (number + 1));
        assert_eq!(asked.header("if-range"), Some(format!("\"{expected}\"").as_str()));
    }
}

#[test]
fn a_changed_file_needs_restart() {
    let (old, new) = (large(), archive(&good()));
    let expected = sha256(&new);
    let server = Server::start(move |asked, out| match asked.number {
        0..3 => serve(asked, out, &old, 300_000),
        _ => serve(asked, out, &new, usize::MAX),
    });
    let host = Host::new();
    assert_eq!(fetch(&server, &host).unwrap().sha256, expected);
    let paths: Vec<_> = server.asked().iter().map(|asked| asked.path.contains(".sha256")).collect();
    assert_eq!(paths, [true, false, false, false, true, false, false]);
}

#[test]
fn a_server_without_ranges_is_asked_a_few_times() {
    let archive = large();
    let server = Server::start(move |asked, out| {
        let asked = Asked { headers: vec![], ..asked.clone() };
        serve(&asked, out, &archive, 300_000);
    });
    let error = fetch(&server, &Host::new()).unwrap_err();
    assert!(
        matches!(&error, InstallError::Source(SourceError { kind: SourceErrorKind::NoRanges, .. })),
        "{error}"
    );
    assert!(server.asked().len() <= 5 * 4, "{}", server.asked().len());
}

#[test]
fn a_shorter_file_than_the_range_is_a_changed_one() {
    let server =
        Server::start(|_, out| head(out, "416 Range Not Satisfiable", &["Content-Length: 0".into()]));
    let error = source(&server).open(&server.url("/x"), 10, &patience()).err().unwrap();
    assert_eq!(error.kind, SourceErrorKind::Changed);
}

#[test]
fn what_the_server_answers_is_told_without_secrets() {
    let server = Server::start(|asked, out| {
        let status = asked.path.trim_start_matches('/').split('?').next().unwrap().to_owned();
        head(out, &status.replace('/', " "), &["Content-Length: 0".into()]);
    });
    for (status, transient) in
        [(404, false), (403, false), (204, false), (500, true), (503, true), (429, true)]
    {
        let url = server.url(&format!("/{status}/x?token=secret")).replace("https://", "https://me:secret@");
        let error = source(&server).open(&url, 0, &patience()).err().unwrap();
        assert_eq!((&error.kind, error.is_transient()), (&SourceErrorKind::Status(status), transient));
        assert_eq!(error.url, server.url(&format!("/{status}/x")));
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
    // A range that nobody asked for, and one that makes no sense.
    for from in [0, 5] {
        assert!(source(&server).open(&server.url("/206/x"), from, &patience()).is_err());
    }
}

#[test]
fn redirects_are_followed_five_times_and_only_to_https() {
    let server = Server::start(|asked, out| {
        let number: u32 = asked.path[1..].split('?').next().unwrap().parse().unwrap_or(0);
        let to = match asked.path.as_str() {
            "/plain" => "http://192.0.2.1/x?token=secret".to_owned(),
            "/file" => "file:///etc/passwd".to_owned(),
            "/circle" => "/circle?token=secret".to_owned(),
            "/circle?token=secret" => "/circle".to_owned(),
            _ if number > 0 => format!("/{}?token=secret", number - 1),
            _ => {
                head(out, "200 OK", &["Content-Length: 2".into()]);
                let _ = out.write_all(b"ok");
                return;
            }
        };
        head(out, "302 Found", &[format!("Location: {to}"), "Content-Length: 0".into()]);
    });
    let source = source(&server);
    let mut text = String::new();
    source.open(&server.url("/5"), 0, &patience()).unwrap().body.read_to_string(&mut text).unwrap();
    assert_eq!(text, "ok");
    for path in ["/6", "/circle", "/plain", "/file"] {
        let before = server.asked().len();
        let error = source.open(&server.url(path), 0, &patience()).err().unwrap();
        assert!(matches!(error.kind, SourceErrorKind::Redirect(_)), "{path}: {error}");
        assert!(!error.is_transient() && !format!("{error:?}").contains("secret"), "{error:?}");
        assert!(server.asked().len() - before <= 6, "{path}");
    }
}

#[test]
fn a_huge_header_is_refused() {
    let server = Server::start(|asked, out| {
        let many = asked.path.contains("many");
        let (count, bytes) = if many { (1000, 10) } else { (1, 10 << 20) };
        let _ = write!(out, "HTTP/1.1 200 OK\r\n");
        for _ in 0..count {
            let _ = write!(out, "X-Huge: {}\r\n", "x".repeat(bytes));
        }
        let _ = write!(out, "Content-Length: 0\r\n\r\n");
    });
    for path in ["/many", "/large"] {
        let error = source(&server).open(&server.url(path), 0, &patience()).err().unwrap();
        assert!(matches!(error.kind, SourceErrorKind::Unreachable(_)), "{error}");
    }
}

#[test]
fn silence_ends_and_slowness_does_not() {
    let (release, held): (_, Receiver<()>) = channel();
    let held = Mutex::new(held);
    let server = Server::start(move |asked, out| {
        head(out, "200 OK", &["Content-Length: 20".into()]);
        if asked.path == "/slow" {
            for _ in 0..20 {
                let _ = out.write_all(b"x");
                let _ = out.flush();
                let _ = held.lock().unwrap().recv_timeout(Duration::from_millis(60));
            }
        } else {
            let _ = out.write_all(b"half of it");
            let _ = out.flush();
            let _ = held.lock().unwrap().recv();
        }
    });
    let source = source(&server);
    // It takes longer in all than any silence may.
    let mut text = String::new();
    source.open(&server.url("/slow"), 0, &patience()).unwrap().body.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x".repeat(20));
    let began = Instant::now();
    let error = source
        .open(&server.url("/silent"), 0, &patience())
        .unwrap()
        .body
        .read_to_string(&mut text)
        .unwrap_err();
    assert!(error.to_string().contains("nothing came for"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(release);
}

#[test]
fn a_body_of_another_length_than_it_said_is_not_taken_for_whole() {
    let archive = archive(&good());
    let server = Server::start(move |asked, out| {
        if asked.path.contains(".sha256") {
            return serve(asked, out, &archive, usize::MAX);
        }
        // Always the first half, wherever it should begin.
        head(out, "200 OK", &[format!("Content-Length: {}", archive.len())]);
        let _ = out.write_all(&archive[..archive.len() / 2]);
    });
    let error = fetch(&server, &Host::new()).unwrap_err();
    assert!(matches!(&error, InstallError::Source(error) if error.needs_restart()), "{error}");
    let server = Server::start(|_, out| {
        head(out, "200 OK", &["Content-Length: 5".into()]);
        let _ = out.write_all(b"longer than that");
    });
    let (source, url) = (source(&server), server.url("/x"));
    let patience = patience();
    let mut reader =
        ResumingReader::open(&source, &url, &|_, _| {}, &patience, &TransferLimits::default()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
    assert_eq!(bytes, b"longe");
}

#[test]
fn an_archive_without_length_is_still_checked_for_its_end() {
    let archive = archive(&good());
    let cut = Mutex::new(true);
    let server = Server::start(move |asked, out| {
        if asked.path.contains(".sha256") {
            return serve(asked, out, &archive, usize::MAX);
        }
        head(out, "200 OK", &[]);
        let half = std::mem::replace(&mut *cut.lock().unwrap(), false);
        let _ = out.write_all(if half { &archive[..archive.len() / 2] } else { &archive });
    });
    let error = fetch(&server, &Host::new()).unwrap_err();
    assert!(matches!(&error, InstallError::Archive { .. }), "{error}");
    fetch(&server, &Host::new()).unwrap();
}

#[test]
fn a_server_that_is_not_trusted_is_not_asked_again() {
    let server = Server::start(|_, out| head(out, "200 OK", &["Content-Length: 0".into()]));
    let stranger = HttpsSource::new(client(rustls::RootCertStore::empty()), options()).unwrap();
    let error = stranger.open(&server.url("/x"), 0, &patience()).err().unwrap();
    assert!(matches!(error.kind, SourceErrorKind::Untrusted(_)) && !error.is_transient(), "{error}");
    assert!(server.asked().is_empty());
}

#[test]
fn only_https_is_asked() {
    let server = Server::start(|_, _| {});
    let strict =
        HttpsSource::new(server.trust(), HttpsOptions { http_on_loopback: false, ..options() }).unwrap();
    for url in ["http://127.0.0.1:1/x?secret", "ftp://a/x?secret", "file:///etc/passwd", "secret", ""] {
        let error = strict.open(url, 0, &patience()).err().unwrap();
        assert!(matches!(error.kind, SourceErrorKind::Address(_)), "{url}: {error}");
        assert!(url == "secret" || !format!("{error:?}").contains("secret"), "{error:?}");
    }
    let error = source(&server).open("http://192.0.2.1/x", 0, &patience()).err().unwrap();
    assert!(matches!(error.kind, SourceErrorKind::Address(_)), "{error}");
    let error = source(&server).open("http://127.0.0.1:1/x", 0, &patience()).err().unwrap();
    assert!(matches!(error.kind, SourceErrorKind::Unreachable(_)) && error.is_transient(), "{error}");
}
