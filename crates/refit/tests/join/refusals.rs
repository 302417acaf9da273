//! Rejected tokens, and the errors on both sides.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_authority::TokenStore;
use refit_backend::{EtcdAddress, EtcdBackend};
use refit_types::AgentRole;
use serde_json::Value;

use crate::agent::{Agent, dies, has_all, new_token, nodes, pasted};
use crate::host::{Host, empty_store, eventually};

const STATIC: &str = "a-secret-of-the-configuration";

/// The line of `nodes add` with another token.
fn with_token<'a>(line: &'a Value, token: &'a str) -> Vec<&'a str> {
    let own = line["token"].as_str().unwrap();
    pasted(line).into_iter().map(|part| if part == own { token } else { part }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_token_is_refused_in_words_of_its_own_and_leaves_nothing_behind() {
    let host = Host::new();
    let store = empty_store("bad-tokens").await;
    let server = host.serve_with(&["--backend", &store], &[]);
    let backend = EtcdBackend::connect(&EtcdAddress::parse(&store).unwrap()).await.unwrap();
    let tokens = TokenStore::new(Arc::new(backend), &[]);
    let long_ago = Timestamp::now() - SignedDuration::from_hours(2);
    let over = tokens
        .create(&[AgentRole::Node], Duration::from_secs(60), "test", long_ago, |_| Ok(Vec::new()))
        .await
        .unwrap();
    let line = new_token(&host, "node");

    let wrong = "0123456789abcdef0123456789abcdef";
    let ended = over.expires().to_string();
    let as_kube: Vec<&str> =
        pasted(&line).into_iter().map(|part| if part == "node" { "kube" } else { part }).collect();
    let cases: [(&str, Vec<&str>, &[&str]); 3] = [
        ("unknown", with_token(&line, wrong), &["the token is not known", "refitctl nodes add"]),
        (
            "expired",
            with_token(&line, over.secret()),
            &["the token expired at", &ended, "refitctl nodes add"],
        ),
        ("role", as_kube, &["does not allow the role kube, only node", "--roles"]),
    ];
    for (name, arguments, words) in &cases {
        let (code, error) = dies(&host, name, arguments);
        assert_eq!(code, Some(1), "{error}");
        has_all(&error, words);
        let uuid = std::fs::read_to_string(host.path(name).join("host_uuid")).unwrap();
        let log = server.log();
        let told = log.lines().find(|line| line.contains("a host was refused") && line.contains(uuid.trim()));
        let told = told.unwrap_or_else(|| panic!("nothing of {name} in {log}"));
        has_all(told, &["audit", words[0]]);
        assert!(!told.contains(wrong) && !told.contains(over.secret()), "{told}");
    }
    assert!(nodes(&host, &[]).is_empty());
    assert_eq!(tokens.list().await.unwrap().len(), 2, "the two that were made");
}

#[test]
fn an_address_that_was_refused_too_often_has_to_wait() {
    let host = Host::new();
    let server = host.serve();
    let line = new_token(&host, "node");
    let guess = with_token(&line, "0123456789abcdef0123456789abcdef");
    // More at once than are let through, so that a slow machine forgives none of them meanwhile.
    let guessers: Vec<Agent> = (0..14).map(|n| Agent::start(&host, &format!("guesser{n}"), &guess)).collect();
    let told = "too many attempts to join from 127.0.0.1 were refused; try again in";
    eventually("one is told to wait", || guessers.iter().any(|guesser| guesser.log().contains(told)));
    assert!(server.log().contains("a host was refused"), "{}", server.log());
    drop(guessers);
    // It is a pause, not a ban.
    let mut patient = Agent::paste(&host, "patient", &line);
    eventually("the good token works in time", || nodes(&host, &[]).len() == 1);
    patient.connects(&host);
    patient.signal(rustix::process::Signal::TERM);
    assert_eq!(patient.ends(), Some(0));
}

#[test]
fn static_tokens_work_for_as_long_as_they_stand_in_the_configuration() {
    let host = Host::new();
    let data = host.path("data");
    let config = format!(
        "data_dir: {}\nlisten: 127.0.0.1:0\ndiag_listen: 127.0.0.1:0\nstatic_tokens:\n- token: {STATIC}\n  roles: [node]\n",
        data.display()
    );
    let file = host.write("server.yaml", &config);
    let flags = ["--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    let server = host.serve_with(&flags, &[]);
    let made = new_token(&host, "kube");
    let joined = Agent::start(
        &host,
        "static",
        &["--proxy", server.address(), "--token", STATIC, "--ca-pin", made["ca_pin"].as_str().unwrap()],
    );
    joined.connects(&host);

    let listed = host.ctl(&["tokens", "ls", "--format", "json"]).json();
    let by_life = |never: bool| {
        let mut of = listed.as_array().unwrap().iter().filter(|token| token["expires"].is_null() == never);
        let name = of.next().unwrap()["name"].as_str().unwrap().to_owned();
        assert!(of.next().is_none(), "{listed}");
        name
    };
    let text = host.ctl(&["tokens", "ls"]).good();
    has_all(&text, &["never", &by_life(true), &by_life(false)]);
    assert!(!text.contains(STATIC) && !text.contains(made["token"].as_str().unwrap()), "{text}");
    let kept = host.ctl(&["tokens", "rm", &by_life(true)]).bad(1);
    has_all(&kept, &["is in a server's configuration", "remove it there"]);
    host.ctl(&["tokens", "rm", &by_life(false)]).good();
    let (code, error) = dies(&host, "late", &pasted(&made));
    assert_eq!(code, Some(1));
    has_all(&error, &["the token is not known"]);
    let missing = host.ctl(&["tokens", "rm", "ffffffffffff"]).bad(1);
    has_all(&missing, &["ffffffffffff", "refitctl tokens ls"]);
}

#[test]
fn a_host_with_nothing_to_show_is_told_what_it_needs() {
    let host = Host::new();
    let server = host.serve();
    let line = new_token(&host, "node");
    let (code, error) = dies(&host, "none", &["--proxy", server.address()]);
    assert_eq!(code, Some(1));
    has_all(&error, &["has not joined a cluster", "--token", "refitctl nodes add", "--ca-pin"]);
    let token = line["token"].as_str().unwrap();
    let (code, error) = dies(&host, "unpinned", &["--proxy", server.address(), "--token", token]);
    assert!(code.is_some_and(|code| code != 0));
    has_all(&error, &["--ca-pin"]);

    let other = format!("sha256:{}", "ab".repeat(32));
    let refused = ["--proxy", server.address(), "--token", token, "--ca-pin", &other];
    let (code, error) = dies(&host, "pinned", &refused);
    assert_eq!(code, Some(1), "{error}");
    has_all(&error, &["CA pin", &other, line["ca_pin"].as_str().unwrap(), "check the address and the pin"]);
    assert!(!server.log().contains("a host was refused"), "the token was sent: {}", server.log());
    assert!(nodes(&host, &[]).is_empty());
}
