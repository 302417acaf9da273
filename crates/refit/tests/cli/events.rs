//! `refitctl events ls`: the audit log in text and JSON.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::event_stream::Following;
use crate::host::Host;
use crate::resources::channel as document;

/// What of an event does not depend on the clock.
fn gist(event: &Value) -> Value {
    json!([event["type"], event["actor"], event["subject"], event["differences"]])
}

fn difference(path: &str, before: &str, after: &str) -> Value {
    json!({ "path": path, "before": before, "after": after })
}

#[test]
fn an_operator_sees_who_changed_what() {
    let host = Host::new();
    let _server = host.serve();
    assert_eq!(host.ctl(&["events", "ls"]).good(), "Nothing has been done yet.\n");
    host.ctl_with_input(&["create", "-"], &document("stable/cloud", "15.1.0")).good();
    let alice = host.path("alice.json");
    let alice = alice.to_str().unwrap();
    host.ctl(&["auth", "sign", "--user", "alice", "--roles", "version-editor", "--out", alice]).good();
    let changed = document("stable/cloud", "15.1.1");
    let update = ["create", "--force", "-", "--identity", alice];
    host.ctl_with_input(&update, &changed).good();
    // The same once more is stored, and is no event.
    host.ctl_with_input(&update, &changed).good();
    host.ctl(&["rm", "channel/stable/cloud"]).good();
    let token = host.ctl(&["nodes", "add", "--format", "json"]).json()["token"].as_str().unwrap().to_owned();

    let all = host.ctl(&["events", "ls", "--format", "json"]).json();
    let all = all.as_array().unwrap();
    let subject = "channel/stable/cloud";
    let created =
        json!([difference("spec.critical", "", "true"), difference("spec.version", "", r#""15.1.0""#)]);
    let updated = json!([difference("spec.version", r#""15.1.0""#, r#""15.1.1""#)]);
    let deleted =
        json!([difference("spec.critical", "true", ""), difference("spec.version", r#""15.1.1""#, "")]);
    assert_eq!(all.len(), 5, "{all:#?}");
    assert_eq!(gist(&all[0]), json!(["resource.created", "admin", subject, created]));
    assert_eq!(gist(&all[1]), json!(["identity.signed", "admin", "user/alice", []]));
    assert_eq!(gist(&all[2]), json!(["resource.updated", "alice", subject, updated]));
    assert_eq!(gist(&all[3]), json!(["resource.deleted", "admin", subject, deleted]));
    assert_eq!(all[4]["type"], "token.created");
    let ids: Vec<&str> = all.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted() && ids[0] < ids[4], "{ids:?}");

    let shown = host.ctl(&["events", "ls"]).good();
    assert!(!shown.contains(&token) && !format!("{all:?}").contains(&token), "a secret is in {shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(words, ["TIME", "WHO", "WHAT", "MESSAGE"], "{shown}");
    assert!(shown.contains(r#"    spec.version: "15.1.0" -> "15.1.1""#), "{shown}");
    let row = lines.iter().find(|line| line.contains("alice") && line.contains("changed")).unwrap();
    assert!(row.contains(" UTC ") && row.contains(subject), "{shown}");

    let from = all[3]["at"].as_str().unwrap();
    let later = host.ctl(&["events", "ls", "--since", from, "--format", "json"]).json();
    assert_eq!(later, json!(all[3..]));
    assert_eq!(host.ctl(&["events", "ls", "--since", "1h", "--format", "json"]).json(), json!(all));
    let as_yaml = host.ctl(&["events", "ls", "--format", "yaml"]).good();
    let as_yaml: Value = serde_saphyr::from_str(&as_yaml).unwrap();
    assert_eq!(as_yaml, json!(all));
    let future = host.ctl(&["events", "ls", "--since", "2100-01-01T00:00:00Z"]).good();
    assert_eq!(future, "Nothing has been done since then.\n");
    let wrong = host.ctl(&["events", "ls", "--since", "yesterday"]).bad(2);
    assert!(wrong.contains("expected something like 1h"), "{wrong}");
}

#[test]
fn followers_see_each_event_as_it_comes_and_end_cleanly() {
    let host = Host::new();
    let mut server = host.serve();
    host.ctl_with_input(&["create", "-"], &document("first", "1.0.0")).good();
    let json = Following::start(&host, &["events", "ls", "--follow", "--format", "json"]);
    let text = Following::start(&host, &["events", "ls", "--follow"]);
    let event = |line: String| serde_json::from_str::<Value>(&line).unwrap()["subject"].clone();
    assert_eq!(event(json.line()), "channel/first", "what is there comes first");
    assert!(text.line().starts_with("TIME"));
    assert!(text.line().contains("channel/first"));
    assert!(text.line().starts_with("    spec.critical: (none) -> true"));
    for name in ["second", "third"] {
        host.ctl_with_input(&["create", "-"], &document(name, "1.0.0")).good();
        assert_eq!(event(json.line()), format!("channel/{name}"));
    }
    json.signal(Signal::INT);
    assert_eq!(json.ends().code, Some(0));

    server.signal(Signal::TERM);
    assert_eq!(text.ends().code, Some(1), "a stream that the server ends is not the end that was asked for");
    assert_eq!(server.ends().0, Some(0), "a follower does not hold a server back: {}", server.log());
}
