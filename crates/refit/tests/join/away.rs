//! Agents while servers are unreachable, restart, or die.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::agent::{Agent, dies, has_all, new_token, nodes, pasted};
use crate::host::{Host, empty_store, eventually};

#[test]
fn an_agent_that_reaches_nobody_for_too_long_ends_with_its_own_code() {
    let host = Host::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let pin = format!("sha256:{}", "ab".repeat(32));
    let started = Instant::now();
    let arguments =
        ["--proxy", &free, "--token", "t0ken-t0ken-t0ken", "--ca-pin", &pin, "--unreachable-exit", "10s"];
    let (code, error) = dies(&host, "web", &arguments);
    assert_eq!(code, Some(75), "{error}");
    assert!(started.elapsed() >= Duration::from_secs(10), "{:?}", started.elapsed());
    has_all(&error, &["was not reached for too long", &free, "refused"]);
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
