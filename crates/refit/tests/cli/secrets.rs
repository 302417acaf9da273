//! No secret appears in output, errors or logs.

use std::path::Path;

use refit_testbed::Etcd;
use rustix::process::Signal;

use crate::host::{Host, REFIT, Ran};

const PASSWORD: &str = "open-5e5ame";

#[track_caller]
fn assert_silent(text: &str) {
    // The password as it is, and as a URL and a header have it.
    for secret in [PASSWORD, "5e5ame", "PRIVATE KEY", "b3Blbi01ZTVhbWU"] {
        assert!(!text.contains(secret), "{secret:?} is in {text}");
    }
}

#[tokio::test]
async fn no_output_and_no_log_holds_a_secret() {
    let etcd = Etcd::builder().password(PASSWORD).start().await;
    let host = Host::new();
    let store = |password: &str| format!("etcd://refit:{password}@{}/refit", etcd.endpoint());
    let mut server = host.serve_with(&["--backend", &store(PASSWORD)], &[("REFIT_LOG", "trace")]);
    assert!(server.fact("Store").contains(&etcd.endpoint()), "{}", server.greeting);
    for arguments in [
        &["status"][..],
        &["get", "channels"],
        &["auth", "sign", "--user", "a", "--roles", "admin", "--out", "a.json"],
        &["auth", "sign", "--user", "a", "--roles", "admin", "--out", "a.json"],
        &["get", "channel/none"],
        &["migrations", "ls"],
    ] {
        let mut command = host.command(&host.path("refitctl"), arguments);
        let ran = Ran::of(command.env("REFIT_DATA_DIR", host.path("data")).env("REFIT_LOG", "trace"));
        assert_silent(&format!("{ran:?}"));
    }
    assert_silent(&server.page("/metrics").1);
    server.signal(Signal::TERM);
    let (code, rest) = server.ends();
    assert_eq!(code, Some(0));
    assert_silent(&(server.greeting.clone() + &rest));
    assert!(server.log().contains("TRACE"), "the log was to tell everything");
    assert_silent(&server.log());

    let ports = ["--listen", "127.0.0.1:0", "--diag-listen", "127.0.0.1:0", "--data-dir", "other"];
    let mut wrong = host.command(Path::new(REFIT), &[&["server"], &ports[..]].concat());
    wrong.env("REFIT_BACKEND", store(&format!("{PASSWORD}!"))).env("REFIT_LOG", "trace");
    let ran = Ran::of(&mut wrong);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let error = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap().to_owned();
    assert!(error.contains(&etcd.endpoint()) && error.contains("refused the credentials"), "{error}");
    assert_silent(&ran.stderr);
    assert_silent(&ran.stdout);
}

#[test]
fn addresses_that_cannot_be_used_do_not_show_their_password() {
    let host = Host::new();
    let bad = [
        format!("etcd://refit:{PASSWORD}@"),
        format!("etcd://refit:{PASSWORD}@host:x/refit"),
        format!("etcd://refit:{PASSWORD}@127.0.0.1:1/refit?colour=red"),
        format!("etcd:refit:{PASSWORD}@127.0.0.1"),
        format!("http://refit:{PASSWORD}@127.0.0.1:1"),
        format!("refit:{PASSWORD}@127.0.0.1:1"),
        format!("//refit@{PASSWORD}"),
    ];
    for store in &bad {
        let error = host.refit(&["server", "--data-dir", "data", "--backend", store]).bad(2);
        assert_silent(&error);
        let file = host.write("refit.yaml", &format!("backend: \"{store}\"\n"));
        let error = host.refit(&["server", "--config", file.to_str().unwrap()]).bad(2);
        assert_silent(&error);
    }
    // A slip of the hand elsewhere in the file must not print the line above it either.
    let file = host.write("refit.yaml", &format!("backend: etcd://refit:{PASSWORD}@h:1/p\nlisten: [\n"));
    assert_silent(&host.refit(&["server", "--config", file.to_str().unwrap()]).bad(2));
    let mut help = host.command(Path::new(REFIT), &["server", "--help"]);
    let help = Ran::of(help.env("REFIT_BACKEND", format!("etcd://refit:{PASSWORD}@h:1/p"))).good();
    assert_silent(&help);
}
