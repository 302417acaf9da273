//! No token and no key appears in logs or errors.

use rustix::process::Signal;
use serde_json::Value;

use crate::agent::{Agent, new_token, pasted};
use crate::host::{Host, REFIT, Ran, eventually};

const STATIC: &str = "a-secret-of-the-configuration";
const GUESS: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn no_log_and_no_error_holds_a_token_or_a_key() {
    let host = Host::new();
    let data = host.path("data");
    let config = format!(
        "listen: 127.0.0.1:0\ndiag_listen: 127.0.0.1:0\nstatic_tokens:\n- token: {STATIC}\n  roles: [node]\n"
    );
    let file = host.write("server.yaml", &config);
    let flags = ["--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    let mut server = host.serve_with(&flags, &[("REFIT_LOG", "trace")]);
    let address = server.address().to_owned();
    let made = new_token(&host, "node");
    let (token, pin) = (made["token"].as_str().unwrap(), made["ca_pin"].as_str().unwrap());
    let loud = |name: &str, token: &str| {
        let arguments = ["--proxy", &address, "--ca-pin", pin];
        let variables = [("REFIT_LOG", "trace"), ("REFIT_TOKEN", token)];
        Agent::start_by(REFIT.as_ref(), &host, name, &arguments, &variables)
    };
    let mut seen = Vec::new();
    for (name, token) in [("made", token), ("static", STATIC)] {
        let mut agent = loud(name, token);
        agent.connects(&host);
        agent.signal(Signal::HUP);
        eventually("it is back", || agent.status(&host).is_some());
        agent.connects(&host);
        agent.signal(Signal::TERM);
        assert_eq!(agent.ends(), Some(0), "{}", agent.log());
        seen.push(agent.log());
    }
    let mut guess = loud("guess", GUESS);
    assert_eq!(guess.ends(), Some(1));
    seen.push(guess.log());
    let listed: Value = host.ctl(&["tokens", "ls", "--format", "json"]).json();
    seen.push(listed.to_string());
    let mut usage = host.command(REFIT.as_ref(), &["agent", "start", "--help"]);
    let help = Ran::of(usage.env("REFIT_TOKEN", token)).good();
    seen.push(help);
    let odd = [&pasted(&made)[..], &["--roles", "king"]].concat();
    let odd = host.refit(&[&["agent", "start", "--data-dir", "odd"][..], &odd].concat());
    assert_ne!(odd.code, Some(0));
    seen.push(format!("{odd:?}"));
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
    assert!(server.log().contains("TRACE") && seen[0].contains("TRACE"), "the logs were to tell everything");
    seen.push(server.log());
    for text in &seen {
        for secret in [token, STATIC, GUESS, "PRIVATE KEY"] {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret:?} is in {line:?}");
        }
    }
}
