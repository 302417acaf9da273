//! The lifecycle of a server process: start, health, conflicts with another server, signals and kills.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use crate::host::{Host, Ran, eventually, mode};

fn everything_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(everything_below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn the_line_that_a_new_server_proposes_works_as_it_is_pasted() {
    let host = Host::new();
    let data = host.path("it's mine");
    let server = host.serve_with(&["--data-dir", data.to_str().unwrap(), "--cluster-name", "fresh"], &[]);
    assert_eq!(server.fact("Cluster"), "fresh");
    let pin = server.fact("CA pin");
    assert!(pin.starts_with("sha256:") && pin.len() == 71, "{pin}");

    let mut pasted = host.command(Path::new("sh"), &["-c", server.proposed()]);
    let shown = Ran::of(&mut pasted).good();
    for expected in [pin, server.address(), "fresh", "admin (admin)"] {
        assert!(shown.contains(expected), "{expected:?} is not in {shown}");
    }

    for path in everything_below(&data) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(format!("{:o}", mode(&path)), format!("{expected:o}"), "{}", path.display());
    }
}

#[test]
fn health_and_metrics_answer() {
    let host = Host::new();
    let server = host.serve();
    assert_eq!(server.page("/healthz"), (200, "ok\n".into()));
    assert_eq!(server.page("/readyz"), (200, "ready\n".into()));
    assert_eq!(server.page("/nothing").0, 404);
    let migrated = r#"refit_migrations{number="1",outcome="success"} 1"#;
    eventually("the migration is counted", || server.page("/metrics").1.contains(migrated));
    host.ctl(&["status"]).good();
    let metrics = server.page("/metrics").1;
    let called = r#"refit_requests_total{method="/refit.cluster.v1.ClusterService/GetStatus",code="0"} 1"#;
    for expected in [called, "refit_connections ", "refit_build_info{version="] {
        assert!(metrics.contains(expected), "{expected} is not in {metrics}");
    }
}

#[test]
fn a_server_that_is_told_to_stop_ends_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let host = Host::new();
        let mut server = host.serve();
        assert_eq!(server.page("/readyz").0, 200);
        server.signal(signal);
        let (code, rest) = server.ends();
        assert_eq!((code, rest.as_str()), (Some(0), ""), "{}", server.log());
        assert!(server.log().contains("stopping"), "{}", server.log());
        let pin = server.fact("CA pin").to_owned();
        assert_eq!(host.serve().fact("CA pin"), pin, "the cluster is the same after a restart");
    }
}

#[test]
fn a_server_that_waits_for_its_store_can_be_told_to_stop() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = Host::new();
    let store = format!("etcd://{}/refit", silent.local_addr().unwrap());
    let mut server = host.launch(&["--backend", &store], &[]);
    // It listens for signals, and has come as far as the store, when it connects.
    drop(silent.accept().unwrap());
    server.signal(Signal::TERM);
    let (code, printed) = server.ends();
    assert_eq!((code, printed.as_str()), (Some(0), ""), "{}", server.log());
}

#[test]
fn a_second_server_on_the_same_directory_says_so() {
    let host = Host::new();
    let _first = host.serve();
    let ports = ["--listen", "127.0.0.1:0", "--diag-listen", "127.0.0.1:0"];
    let second = host.refit(&[&["server", "--data-dir", "data"], &ports[..]].concat()).bad(1);
    assert!(second.contains("in use by another server"), "{second}");
    host.ctl(&["status"]).good();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let host = Host::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let other = ["--diag-listen", "127.0.0.1:0"];
    let ran = host.refit(&[&["server", "--data-dir", "data", "--listen", &address], &other[..]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let error = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    for expected in [address.as_str(), "in use", "--listen"] {
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
}

#[test]
fn a_server_killed_at_once_starts_again() {
    let host = Host::new();
    let mut server = host.serve();
    let pin = server.fact("CA pin").to_owned();
    host.ctl_with_input(
        &["create", "-"],
        r#"{"kind": "channel", "metadata": {"name": "kept"}, "spec": {"version": "1.2.3"}}"#,
    )
    .good();
    server.signal(Signal::KILL);
    assert_eq!(server.ends().0, None);
    let again = host.serve();
    assert_eq!(again.fact("CA pin"), pin);
    host.ctl(&["get", "channel/kept"]).good();
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let host = Host::new();
    let _server = host.serve();
    let mut command = host.command(&host.path("refitctl"), &["status", "--data-dir", "data"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}
