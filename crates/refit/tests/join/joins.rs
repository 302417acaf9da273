//! Joining by the pasted command: the files on the host, and the host in the fleet.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use jiff::Timestamp;
use refit_identity::{Identities, Identity, SqliteIdentities};
use refit_types::AgentRole;
use rustix::process::Signal;
use serde_json::json;

use crate::agent::{Agent, has_all, new_token, node, nodes, pasted};
use crate::host::{Host, Ran};

/// What a stopped agent has for a role.
fn stored(data: &Path, role: AgentRole) -> Option<Identity> {
    let opened = SqliteIdentities::open(&data.join("proc/sqlite.db"), Timestamp::now()).unwrap();
    assert!(opened.quarantined.is_none());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let loaded = runtime.block_on(Identities::new(Arc::new(opened.store)).load(role)).unwrap();
    loaded.active().cloned()
}

#[test]
fn the_line_of_nodes_add_makes_a_host_with_an_identity_for_each_role() {
    let host = Host::new();
    let server = host.serve();
    let token = new_token(&host, "node,kube");
    let keys: Vec<_> = token.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["token", "roles", "expires", "ca_pin", "command"]);
    assert_eq!(token["roles"], json!(["node", "kube"]));
    assert!(token["expires"].as_str().unwrap().parse::<Timestamp>().unwrap() > Timestamp::now());
    has_all(&pasted(&token).join(" "), &[server.address(), token["ca_pin"].as_str().unwrap()]);

    let mut agent = Agent::paste(&host, "web", &token);
    agent.connects(&host);
    assert_eq!(agent.status(&host).unwrap()["identity_issuer"], token["ca_pin"]);
    let uuid = agent.uuid();
    assert_eq!(node(&host, &uuid).unwrap()["roles"], json!(["node", "kube"]));
    assert!(server.log().contains("a host joined") && server.log().contains(&uuid), "{}", server.log());
    agent.signal(Signal::TERM);
    assert_eq!(agent.ends(), Some(0), "{}", agent.log());

    let data = agent.data().to_owned();
    let [node_role, kube_role] = [AgentRole::Node, AgentRole::Kube].map(|role| stored(&data, role).unwrap());
    assert_ne!(node_role.certificate().serial(), kube_role.certificate().serial());
    assert!(stored(&data, AgentRole::Db).is_none());
    read_by_others(&host, &data, &uuid, &node_role);

    // No token and no pin: the identity is enough.
    let again = Agent::start(&host, "web", &["--proxy", server.address(), "--roles", "node,kube"]);
    again.connects(&host);
    assert_eq!((again.uuid(), nodes(&host, &[]).len()), (uuid, 1));
    again.stop();
}

/// OpenSSH and OpenSSL read what was signed.
fn read_by_others(host: &Host, data: &Path, uuid: &str, identity: &Identity) {
    let ssh = host.write("host-cert.pub", identity.ssh_certificate().unwrap());
    let shown = Ran::of(Command::new("ssh-keygen").args(["-L", "-f"]).arg(ssh)).good();
    has_all(&shown, &["host certificate", uuid]);
    let principals = shown.split("Principals:").nth(1).unwrap();
    assert!(principals.split("Critical").next().unwrap().contains(uuid), "{shown}");
    let leaf = host.write("leaf.pem", &identity.certificate().to_pem());
    let trust = data.join("trust.pem");
    let verified = Ran::of(Command::new("openssl").args(["verify", "-CAfile"]).arg(trust).arg(leaf)).good();
    assert!(verified.contains("OK"), "{verified}");
}

#[test]
fn the_fleet_is_listed_searched_and_filtered() {
    let host = Host::new();
    let _server = host.serve();
    assert!(host.ctl(&["nodes", "ls"]).good().contains("refitctl nodes add"));
    let token = new_token(&host, "node");
    let started = |name: &str, labels: &str| {
        let agent = Agent::start(&host, name, &[&pasted(&token)[..], &["--labels", labels]].concat());
        agent.connects(&host);
        agent
    };
    let blue = started("blue", "colour=blue,environment=staging");
    let green = started("green", "colour=green,environment=staging");
    let shown = node(&host, &blue.uuid()).unwrap();
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(shown["edition"], "oss");
    assert_eq!(shown["instance_labels"], json!({ "colour": "blue", "environment": "staging" }));
    assert_eq!((&shown["node_labels"], &shown["connected"]), (&json!({}), &json!(true)));
    assert!(!shown["hostname"].as_str().unwrap().is_empty());
    assert!(shown["last_seen"].as_str().unwrap().parse::<Timestamp>().is_ok());

    let found = |arguments: &[&str]| {
        let found = nodes(&host, arguments);
        found.iter().map(|node| node["host_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--search", &green.uuid()[..13]]), [green.uuid()]);
    assert_eq!(found(&["--search", "blue"]), [blue.uuid()]);
    assert_eq!(found(&["--labels", "environment=staging"]).len(), 2);
    assert_eq!(found(&["--labels", "environment=staging,colour=green"]), [green.uuid()]);
    assert!(found(&["--labels", "colour=red"]).is_empty() && found(&["--search", "red-1"]).is_empty());

    let text = host.ctl(&["nodes", "ls"]).good();
    let version = env!("CARGO_PKG_VERSION");
    has_all(&text, &["HOST", "UUID", "VERSION", "EDITION", "LABELS", "UPDATER", "LAST SEEN"]);
    has_all(&text, &[&blue.uuid(), version, "oss", "colour=blue,environment=staging"]);
    assert!(!text.contains("(away)"), "{text}");
    let uuid = blue.uuid();
    blue.stop();
    crate::host::eventually("the stopped one is away", || node(&host, &uuid).unwrap()["connected"] == false);
    assert!(host.ctl(&["nodes", "ls", "--search", &uuid]).good().contains("(away)"));
}
