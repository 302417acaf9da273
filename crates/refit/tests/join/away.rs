//! Agents while servers are unreachable, restart, or die.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use refit_agent::{AgentConfig, End, Settings, Token, query_readiness};
use refit_types::Edition;
use rustix::process::Signal;

use crate::agent::{Agent, dies, has_all, new_token, nodes, pasted};
use crate::host::{Host, WITHIN, empty_store, eventually};

/// Shorter than what a configuration may say, so that the tests need not wait for a minute.
const LIMIT: Duration = Duration::from_secs(2);

/// An agent in this process, with settings that were checked and a limit of its own.
fn configured(host: &Host, proxy: &str, token: &str, pin: &str) -> AgentConfig {
    let settings = Settings {
        data_dir: Some(host.path("web")),
        proxies: Some(vec![proxy.into()]),
        token: Some(Token::new(token)),
        ca_pin: Some(pin.into()),
        ..Settings::default()
    };
    AgentConfig { unreachable_exit: LIMIT, ..settings.check(&host.path("web")).unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_reaches_nobody_for_too_long_ends() {
    let host = Host::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let config = configured(&host, &free, "t0ken-t0ken-t0ken", &format!("sha256:{}", "ab".repeat(32)));
    let started = Instant::now();
    let end = refit_agent::run(config, "1.0.0".parse().unwrap(), Edition::Oss).await.unwrap();
    let End::Unreachable { reason } = end else { panic!("{end:?}") };
    has_all(&reason, &[&free, "refused"]);
    assert!(started.elapsed() >= LIMIT, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_counts_from_the_loss_of_the_connection_and_not_from_the_last_reply() {
    let host = Host::new();
    let server = host.serve();
    let token = new_token(&host, "node");
    let (secret, pin) = (token["token"].as_str().unwrap(), token["ca_pin"].as_str().unwrap());
    let config = configured(&host, server.address(), secret, pin);
    let socket = config.data_dir.agent_socket();
    let agent = tokio::spawn(refit_agent::run(config, "1.0.0".parse().unwrap(), Edition::Oss));
    refit_testbed::eventually("it connects", WITHIN, async || {
        query_readiness(&socket).await.is_ok_and(|readiness| readiness.connected)
    })
    .await;
    // The next heartbeat is due in half a minute: by then the last reply is older than the limit.
    let connected = Instant::now();
    eventually("the last reply is old", || connected.elapsed() > LIMIT);
    let before = Instant::now();
    drop(server);
    let end = agent.await.unwrap().unwrap();
    assert!(matches!(end, End::Unreachable { .. }), "{end:?}");
    assert!(before.elapsed() >= LIMIT, "it left {:?} after the loss", before.elapsed());
}

#[test]
fn a_limit_below_a_minute_is_refused() {
    let host = Host::new();
    let (code, error) = dies(&host, "web", &["--proxy", "refit.example.com", "--unreachable-exit", "59s"]);
    assert_eq!(code, Some(2), "{error}");
    let file = host.write("agent.yaml", "refit:\n  proxy: refit.example.com\n  unreachable_exit: 10s\n");
    let ran = host.refit(&["agent", "start", "--config", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    has_all(
        &ran.stderr,
        &["refit.unreachable_exit", r#""10s" is out of bounds; expected 60s to 168h (7 days)"#],
    );
}

#[test]
fn a_server_that_comes_up_late_is_found() {
    let host = Host::new();
    let mut server = host.serve();
    let (address, token) = (server.address().to_owned(), new_token(&host, "node"));
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));

    let agent = Agent::paste(&host, "web", &token);
    agent.says("lost connection to the control plane");
    let shown = agent.status(&host).unwrap();
    assert_eq!(shown["connected"], false);
    has_all(shown["reason"].as_str().unwrap(), &["cannot be reached", &address]);
    let server = host.serve_with(&["--listen", &address], &[]);
    agent.connects(&host);
    assert_eq!(agent.status(&host).unwrap()["reason"], serde_json::Value::Null);

    // And again, once it has joined.
    drop(server);
    eventually("it notices", || agent.status(&host).unwrap()["connected"] == false);
    let _server = host.serve_with(&["--listen", &address], &[]);
    agent.connects(&host);
    eventually("it is listed", || nodes(&host, &[])[0]["connected"] == true);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_dead_server_go_to_another_and_none_is_lost() {
    // Each draws where it begins; so many do not all draw the one that lives.
    const AGENTS: usize = 5;
    let store = empty_store("two-servers").await;
    let (one, two) = (Host::new(), Host::new());
    let first = one.serve_with(&["--backend", &store], &[]);
    let second = two.serve_with(&["--backend", &store], &[]);
    let both = format!("{},{}", first.address(), second.address());
    let token = new_token(&one, "node");
    let given = token["command"].as_str().unwrap().split(' ').skip_while(|part| *part != "--token");
    let arguments: Vec<&str> = ["--proxy", &both].into_iter().chain(given).collect();
    assert_eq!(pasted(&token).len(), arguments.len());
    let agents: Vec<Agent> = (0..AGENTS).map(|n| Agent::start(&two, &format!("a{n}"), &arguments)).collect();
    for agent in &agents {
        agent.connects(&two);
    }
    let connected = || {
        let nodes = nodes(&two, &[]);
        nodes.iter().filter(|node| node["connected"] == true).count()
    };
    eventually("all are connected", || connected() == AGENTS);

    first.signal(Signal::KILL);
    eventually("the dead server is no longer counted on", || {
        let status = two.ctl(&["status", "--format", "json"]).json();
        status["servers"].as_array().unwrap().len() == 1
    });
    eventually("all are connected to the other", || connected() == AGENTS);
    for agent in &agents {
        agent.connects(&two);
    }
    assert_eq!(nodes(&two, &[]).len(), AGENTS);
}
