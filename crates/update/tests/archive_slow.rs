//! Mirrors and control planes that send too slowly, never end, or never begin, over real HTTPS. The limits are the
//! library's settings; what they are by default takes longer than a test may.

#![allow(clippy::unwrap_used)]

mod archive_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use archive_support::server::{Asked, Connection, Server};
use archive_support::*;
use refit_types::Edition;
use refit_update::archive::SourceErrorKind;
use refit_update::{
    Answer, ControlPlane, Download, FetchError, HttpsControlPlane, HttpsOptions, HttpsSource, InstallError,
    Interrupt, LockRequest, RealDisk, SourceError, TransferLimits, install,
};

/// Longer than any test: what ends before it was ended by a limit.
const AGES: Duration = Duration::from_secs(600);

fn limits() -> TransferLimits {
    TransferLimits { answer: AGES, checksum: AGES, archive: AGES, rate_bytes: 0, rate_window: AGES }
}

fn source(server: &Server) -> HttpsSource {
    let options = HttpsOptions {
        connect: AGES,
        silence: AGES,
        pause: Duration::from_millis(1),
        http_on_loopback: false,
    };
    HttpsSource::new(server.trust(), options).unwrap()
}

/// A server below whose `/slow` everything comes a byte at a time, and below whose `/silent` nothing comes behind the
/// first bytes, for as long as the sender lives.
fn mirror(archive: Vec<u8>) -> (Server, Sender<()>) {
    let (alive, held) = channel();
    let held = Mutex::new(held);
    let server = Server::start(move |asked, out| {
        let checksum = asked.path.ends_with(".sha256");
        let is_slow = |of_checksum: bool| match of_checksum {
            true => asked.path.starts_with("/slow-checksum/"),
            false => asked.path.starts_with("/slow/"),
        };
        let body = if checksum { sha256(&archive).into_bytes() } else { archive.clone() };
        if asked.path.starts_with("/mute/") {
            let _ = held.lock().unwrap().recv();
            return;
        }
        let from = asked.from();
        if from > 0 {
            let range = format!("Content-Range: bytes {from}-{}/{}", body.len() - 1, body.len());
            let _ = write!(out, "HTTP/1.1 206 Partial Content\r\nConnection: close\r\n{range}\r\n");
        } else {
            let _ = write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n");
        }
        let body = &body[from..];
        let _ = write!(out, "Content-Length: {}\r\n\r\n", body.len());
        // The end of an archive, where its size is, is not what is slow here.
        let trickles = is_slow(checksum) && (checksum || from == 0);
        if asked.path.starts_with("/silent/") && !checksum && from == 0 {
            let _ = out.write_all(&body[..10]);
            let _ = out.flush();
            let _ = held.lock().unwrap().recv();
        } else if trickles {
            trickle(out, body, &held);
        } else {
            let _ = out.write_all(body);
        }
    });
    (server, alive)
}

/// A byte now and then, until nobody listens or the test has ended.
fn trickle(out: &mut dyn Connection, body: &[u8], held: &Mutex<std::sync::mpsc::Receiver<()>>) {
    for byte in body {
        if out.write_all(&[*byte]).and_then(|()| out.flush()).is_err() {
            return;
        }
        use std::sync::mpsc::RecvTimeoutError::Disconnected;
        if held.lock().unwrap().recv_timeout(Duration::from_millis(5)) == Err(Disconnected) {
            return;
        }
    }
}

fn url(server: &Server, below: &str) -> String {
    server.url(&format!("/{below}/refit.tar.gz"))
}

fn large() -> Vec<u8> {
    let mut members = good();
    members[1] = file("refit/refit", noise(1 << 20));
    archive(&members)
}

#[track_caller]
fn kind(error: &InstallError) -> &SourceErrorKind {
    match error {
        InstallError::Source(SourceError { kind, .. }) => kind,
        other => panic!("{other}"),
    }
}

#[test]
fn a_mirror_that_trickles_is_given_up_and_the_next_is_asked() {
    let (server, _alive) = mirror(large());
    let limits =
        TransferLimits { rate_bytes: 256 << 10, rate_window: Duration::from_millis(300), ..limits() };
    let slow = url(&server, "slow");
    let host = Host::new();
    let error =
        host.install_from(&RealDisk, &source(&server), std::slice::from_ref(&slow), &limits).unwrap_err();
    assert!(matches!(kind(&error), SourceErrorKind::TooSlow { .. }), "{error}");
    assert!(error.to_string().contains("too slow") && host.is_bare(), "{error}: {:#?}", host.tree());

    let urls = [slow, url(&server, "nowhere/../slow"), url(&server, "fast")];
    let installed = host.install_from(&RealDisk, &source(&server), &urls, &limits).unwrap();
    assert_eq!(installed.sha256, sha256(&large()));
}

#[test]
fn a_mirror_that_serves_something_else_is_left_for_the_next() {
    let (server, _alive) = mirror(archive(&good()));
    let (hostile, _alive_too) = mirror(archive(&[file("/etc/passwd", "x")]));
    // Both are trusted by a client of their own only, so the first is not trusted: as good a reason.
    let host = Host::new();
    let urls = [url(&hostile, "fast"), url(&server, "fast")];
    host.install_from(&RealDisk, &source(&server), &urls, &limits()).unwrap();

    let memory = Memory::of(archive(&[file("/etc/passwd", "x")]));
    let good_url = "https://other.example/refit.tar.gz";
    memory.files.lock().unwrap().insert(good_url.into(), archive(&good()));
    memory.files.lock().unwrap().insert(format!("{good_url}.sha256"), sha256(&archive(&good())).into());
    let host = Host::new();
    host.install_from(&RealDisk, &memory, &[URL.into(), good_url.into()], &limits()).unwrap();
    assert_eq!(memory.pauses(), 1, "with a pause between them");
}

#[test]
fn a_transfer_ends_at_its_total_limit_wherever_it_hangs() {
    let (server, _alive) = mirror(large());
    let soon = Duration::from_millis(400);
    for (below, limits, named) in [
        ("slow", TransferLimits { archive: soon, ..limits() }, "refit.tar.gz:"),
        ("silent", TransferLimits { archive: soon, ..limits() }, "refit.tar.gz:"),
        ("mute", TransferLimits { checksum: soon, ..limits() }, "refit.tar.gz.sha256:"),
        (
            "slow-checksum",
            TransferLimits { checksum: Duration::from_millis(100), ..limits() },
            "refit.tar.gz.sha256:",
        ),
    ] {
        let host = Host::new();
        let error =
            host.install_from(&RealDisk, &source(&server), &[url(&server, below)], &limits).unwrap_err();
        assert!(matches!(kind(&error), SourceErrorKind::TooLong(_)), "{below}: {error}");
        assert!(error.to_string().contains(named), "{below}: {error}");
        assert!(host.is_bare(), "{below}: {:#?}", host.tree());
    }
}

#[test]
fn a_person_who_waits_for_the_host_ends_a_download_that_hangs() {
    let (server, _alive) = mirror(large());
    for below in ["silent", "mute", "slow"] {
        let host = Host::new();
        let wanted = host.root.path().join("lock.wanted");
        let began = Arc::new(AtomicBool::new(false));
        let asked = began.clone();
        let interrupt = Interrupt::when({
            let wanted = wanted.clone();
            move || {
                asked.store(true, Ordering::SeqCst);
                LockRequest::is_made(&wanted)
            }
        });
        let (source, urls, limits) = (source(&server), [url(&server, below), url(&server, "fast")], limits());
        let download = Download {
            source: &source,
            urls: &urls,
            limits: &limits,
            interrupt: &interrupt,
            progress: &|_, _| {},
        };
        std::thread::scope(|scope| {
            let running =
                scope.spawn(|| install(&RealDisk, &host.layout, &host.profile, &host.version, download));
            while !began.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let _request = LockRequest::make(&wanted).unwrap();
            let error = running.join().unwrap().unwrap_err();
            assert!(error.is_stopped(), "{below}: {error}");
        });
        std::fs::remove_file(&wanted).unwrap();
        assert!(host.is_bare(), "{below}: {:#?}", host.tree());
    }
}

/// The client of a control plane at that server.
fn client<'a>(server: &Server, host: &'a Host, limits: TransferLimits) -> HttpsControlPlane<'a> {
    HttpsControlPlane {
        source: Box::new(source(server)),
        answers: Box::new(source(server)),
        disk: &RealDisk,
        layout: &host.layout,
        profile: &host.profile,
        proxy: server.address.to_string(),
        base_urls: Vec::new(),
        limits,
        interrupt: Interrupt::never(),
        progress: Box::new(|_, _| {}),
    }
}

fn find_answer(jitter: &str) -> String {
    format!(
        r#"{{"server_edition": "oss", "agent_version": "1.2.3", "agent_auto_update": true, "agent_update_jitter_seconds": {jitter}}}"#
    )
}

#[test]
fn find_ends_at_its_limit_and_its_jitter_is_cut_to_an_hour() {
    let (alive, held) = channel::<()>();
    let held = Mutex::new(held);
    let jitters = Mutex::new(vec!["10", "1000000000000", "86400", "3600"]);
    let server = Server::start(move |_: &Asked, out| {
        let jitter = jitters.lock().unwrap().pop();
        let body = find_answer(jitter.unwrap_or("1"));
        let _ = write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        match jitter {
            Some(_) => drop(out.write_all(body.as_bytes())),
            None => trickle(out, body.as_bytes(), &held),
        }
    });
    let host = Host::new();
    let control_plane = client(&server, &host, limits());
    let jitters: Vec<u32> = (0..4).map(|_| control_plane.find().unwrap().jitter_seconds).collect();
    assert_eq!(jitters, [3600, 3600, 3600, 10]);
    let impatient = client(&server, &host, TransferLimits { answer: Duration::from_millis(100), ..limits() });
    let error = impatient.find().unwrap_err();
    assert!(error.to_string().contains("not complete within 100ms"), "{error}");
    drop(alive);
}

#[test]
fn the_client_of_the_control_plane_tries_every_mirror_that_is_named() {
    let (server, _alive) = mirror(large());
    let host = Host::new();
    let answer = Answer {
        version: "1.2.3".parse().unwrap(),
        edition: Edition::Oss,
        auto_update: true,
        jitter_seconds: 0,
        attempt: 1,
        withheld: None,
    };
    let mut control_plane =
        client(&server, &host, TransferLimits { archive: Duration::from_secs(2), ..limits() });
    control_plane.base_urls = ["/slow", "/slow", "/fast"].map(|path| server.url(path)).into();
    control_plane.fetch(&answer).unwrap();
    assert!(host.layout.checksum(&host.version).exists());
    let stopped =
        HttpsControlPlane { interrupt: Interrupt::when(|| true), ..client(&server, &host, limits()) };
    let other = Answer { version: "1.2.4".parse().unwrap(), ..answer };
    assert_eq!(stopped.fetch(&other), Err(FetchError::Stopped));
}
