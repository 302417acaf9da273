//! Hosts that claim to be another, or belong elsewhere.

use std::path::Path;

use rustix::process::Signal;

use crate::agent::{Agent, dies, has_all, new_token, node, nodes, pasted};
use crate::host::{Host, eventually};

fn write_status(data: &Path, text: &str) {
    let folder = data.join("versions");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("new"), text).unwrap();
    std::fs::rename(folder.join("new"), folder.join("status.json")).unwrap();
}

/// A data directory of which only the UUID is known.
fn only_uuid(host: &Host, name: &str, uuid: &str) {
    std::fs::create_dir(host.path(name)).unwrap();
    std::fs::write(host.path(name).join("host_uuid"), format!("{uuid}\n")).unwrap();
}

#[test]
fn a_token_does_not_take_over_a_host_that_has_reported() {
    let host = Host::new();
    let server = host.serve();
    let token = new_token(&host, "node");
    let agent = Agent::paste(&host, "real", &token);
    agent.connects(&host);
    let uuid = agent.uuid();

    only_uuid(&host, "thief", &uuid);
    let (code, error) = dies(&host, "thief", &pasted(&token));
    assert_eq!(code, Some(1));
    let advice = format!("refitctl nodes rm {uuid}");
    has_all(&error, &[&uuid, "has joined already", &advice]);
    has_all(&server.log(), &["a host was refused", "has joined already"]);
    assert_eq!(node(&host, &uuid).unwrap()["connected"], true);

    // A host that has only its certificate can add a role to itself.
    agent.stop();
    let both = new_token(&host, "node,kube");
    let agent = Agent::paste(&host, "real", &both);
    agent.connects(&host);
    assert_eq!(node(&host, &uuid).unwrap()["roles"], serde_json::json!(["node", "kube"]));

    host.ctl(&["nodes", "rm", &uuid]).good();
    assert!(nodes(&host, &[]).is_empty());
    let missing = host.ctl(&["nodes", "rm", &uuid]).bad(1);
    has_all(&missing, &["there is no host", &uuid]);
    // Whoever was removed is told with the next thing that it says, and does not come back by itself.
    write_status(agent.data(), r#"{"agent_updates_enabled":true}"#);
    agent.says("was removed from the cluster; remove its identity and join again");
    eventually("the agent tells that it is cut off", || {
        let status = agent.status(&host).unwrap_or_default();
        status["connected"] == false
            && status["reason"].as_str().is_some_and(|reason| reason.contains("was removed from the cluster"))
    });
    assert!(nodes(&host, &[]).is_empty());
    let heir = Agent::paste(&host, "thief", &token);
    heir.connects(&host);
    assert_eq!(heir.uuid(), uuid);
    assert_eq!(nodes(&host, &[]).len(), 1);
}

#[test]
fn an_identity_of_another_cluster_is_refused_with_both_names() {
    let (one, two) = (Host::new(), Host::new());
    let _first = one.serve_with(&["--cluster-name", "first"], &[]);
    let second = two.serve_with(&["--cluster-name", "second"], &[]);
    let agent = Agent::paste(&one, "web", &new_token(&one, "node"));
    agent.connects(&one);
    agent.stop();
    for token in [false, true] {
        let line = new_token(&two, "node");
        let arguments = if token { pasted(&line) } else { vec!["--proxy", second.address()] };
        let (code, error) = dies(&one, "web", &arguments);
        assert_eq!(code, Some(1), "{error}");
        let store = one.path("web").join("proc/sqlite.db");
        has_all(&error, &["first", "second", store.to_str().unwrap(), "remove", "join again"]);
    }
    assert!(nodes(&two, &[]).is_empty());
    std::fs::remove_dir_all(one.path("web").join("proc")).unwrap();
    let moved = Agent::paste(&one, "web", &new_token(&two, "node"));
    moved.connects(&one);
    assert_eq!(nodes(&two, &[]).len(), 1);
}

#[test]
fn two_agents_with_one_uuid_are_shown_and_told() {
    let host = Host::new();
    let server = host.serve();
    let token = new_token(&host, "node");
    let agent = Agent::paste(&host, "one", &token);
    agent.connects(&host);
    let uuid = agent.uuid();
    agent.stop();
    let copied =
        std::process::Command::new("cp").arg("-a").args([host.path("one"), host.path("two")]).status();
    assert!(copied.unwrap().success());

    let one = Agent::start(&host, "one", &["--proxy", server.address()]);
    one.connects(&host);
    assert_eq!(node(&host, &uuid).unwrap()["duplicate"], false, "a restart is no duplicate");
    let two = Agent::start(&host, "two", &["--proxy", server.address()]);
    two.connects(&host);
    // Each says something more, so that nobody has to wait for the next regular heartbeat.
    write_status(one.data(), r#"{"agent_updates_enabled":true}"#);
    eventually("it is shown as a duplicate", || node(&host, &uuid).unwrap()["duplicate"] == true);
    write_status(two.data(), r#"{"agent_updates_enabled":false}"#);
    for agent in [&one, &two] {
        agent.says("another agent reports with this host's UUID");
    }
    has_all(&server.log(), &["two processes report as one host", &uuid]);
    assert!(host.ctl(&["nodes", "ls"]).good().contains("DUPLICATE UUID"));
    assert_eq!(nodes(&host, &[]).len(), 1);
}

#[test]
fn a_data_directory_has_one_agent_and_a_broken_store_is_kept() {
    let host = Host::new();
    let server = host.serve();
    let token = new_token(&host, "node");
    let mut agent = Agent::paste(&host, "web", &token);
    agent.connects(&host);
    let pid = std::fs::read_to_string(host.path("web").join("agent.pid")).unwrap();
    assert_eq!(pid.trim(), agent.pid().to_string());
    let (code, error) = dies(&host, "web", &["--proxy", server.address()]);
    assert_eq!(code, Some(1));
    has_all(&error, &["another agent", pid.trim(), "stop it"]);
    agent.signal(Signal::TERM);
    assert_eq!(agent.ends(), Some(0));

    let store = host.path("web").join("proc/sqlite.db");
    for extra in ["sqlite.db-wal", "sqlite.db-shm"] {
        let _ = std::fs::remove_file(store.with_file_name(extra));
    }
    std::fs::write(&store, "this was a database once, and now it is not\n".repeat(100)).unwrap();
    // The host has reported, so a token alone is not enough, and the advice says what is.
    let mut broken = Agent::paste(&host, "web", &token);
    assert_eq!(broken.ends(), Some(1));
    has_all(&broken.log(), &["moved it aside", "has joined already", "refitctl nodes rm"]);
    let names = std::fs::read_dir(host.path("web").join("proc")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let aside = names.iter().find(|name| {
        let text = std::fs::read(store.with_file_name(name)).unwrap();
        text.starts_with(b"this was a database once")
    });
    assert!(aside.is_some(), "the broken file is gone: {names:?}");
    host.ctl(&["nodes", "rm", &agent.uuid()]).good();
    Agent::paste(&host, "web", &token).connects(&host);
}
