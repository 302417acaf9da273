//! The reported version of a binary, and the stamp that a release writes into it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::host::{Host, REFIT, Ran, mode};

/// A copy of the program that says it is that version.
fn stamped(host: &Host, version: &str) -> PathBuf {
    let path = host.path(&format!("refit-{version}"));
    host.refit(&["stamp", "--version", version, REFIT, path.to_str().unwrap()]).good();
    path
}

#[test]
fn the_version_is_told_under_every_name() {
    let host = Host::new();
    let version = env!("CARGO_PKG_VERSION");
    symlink(REFIT, host.path("refit-update")).unwrap();
    symlink(REFIT, host.path("refit")).unwrap();
    for name in ["refit", "refitctl", "refit-update"] {
        let run = |arguments: &[&str]| Ran::of(&mut host.command(&host.path(name), arguments));
        assert_eq!(run(&["version"]).good(), format!("{name} v{version} (oss)\n"));
        assert_eq!(run(&["--version"]).good(), format!("{name} {version}\n"));
        let told = json!({ "name": name, "version": version, "edition": "oss" });
        assert_eq!(run(&["version", "--format", "json"]).json(), told);
    }
}

#[test]
fn a_stamped_binary_is_that_version_and_can_be_stamped_again() {
    let host = Host::new();
    let one = stamped(&host, "1.2.3");
    let told = |program: &PathBuf| Ran::of(&mut host.command(program, &["version"])).good();
    assert_eq!((told(&one), mode(&one)), ("refit v1.2.3 (oss)\n".into(), mode(REFIT.as_ref())));
    let args = |version, to| ["stamp", "--version", version, one.to_str().unwrap(), to];
    let two = host.path("two");
    host.refit(&args("v2.0.0-rc.1", two.to_str().unwrap())).good();
    assert_eq!(
        (told(&one).as_str(), told(&two).as_str()),
        ("refit v1.2.3 (oss)\n", "refit v2.0.0-rc.1 (oss)\n")
    );
    // In its own place, and byte for byte what a fresh one would be.
    host.refit(&args("2.0.0-rc.1", one.to_str().unwrap())).good();
    assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
}

#[test]
fn what_is_no_binary_of_ours_is_not_stamped() {
    let host = Host::new();
    let other = host.write("other", "#!/bin/sh\n");
    let run = |version: &str, from: &str| host.refit(&["stamp", "--version", version, from, "out"]);
    let why = run("1.2.3", other.to_str().unwrap()).bad(1);
    assert!(why.contains("no binary of Refit"), "{why}");
    let twice = [std::fs::read(REFIT).unwrap(), std::fs::read(REFIT).unwrap()].concat();
    std::fs::write(host.path("twice"), twice).unwrap();
    assert!(run("1.2.3", "twice").bad(1).contains("more than one place"));
    assert!(run("1.2.3", "missing").bad(1).starts_with("error: missing: "));
    run("1.2", REFIT).bad(2);
    assert!(!host.path("out").exists() && !host.path("out.new").exists());
}

#[test]
fn a_server_advertises_the_version_that_it_was_stamped_with() {
    let host = Host::new();
    let program = stamped(&host, "9.8.7");
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(["server", "--data-dir"])
        .arg(host.path("data"));
    command.args(["--listen", "127.0.0.1:0", "--diag-listen", "127.0.0.1:0"]);
    let mut server =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut greeting = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(greeting.next().as_deref(), Some("Refit 9.8.7 is serving."));
    let address = greeting.find_map(|line| Some(line.strip_prefix("Address")?.trim().to_owned())).unwrap();
    let status = host.ctl(&["status", "--format", "json"]).json();
    assert_eq!(status["servers"][0]["version"], "9.8.7", "{status}");
    let mut curl = Command::new("curl");
    let find = Ran::of(curl.args(["-sk", "--max-time", "30"]).arg(format!("{address}/webapi/find"))).json();
    assert_eq!(find["agent_version"], "9.8.7");
    server.kill().unwrap();
    server.wait().unwrap();
}
