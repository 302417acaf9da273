//! Resources and other `refitctl` output in text, JSON and YAML.

use serde_json::{Value, json};

use crate::host::{Host, empty_store, eventually};

pub(crate) fn channel(name: &str, version: &str) -> String {
    format!(
        "kind: channel\nversion: v2\nmetadata:\n  name: {name}\nspec:\n  version: {version}\n  critical: true\n"
    )
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A document that replaces whatever is there.
pub(crate) fn without_revision(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("revision"));
    lines.map(|line| format!("{line}\n")).collect()
}

fn round_trip(host: &Host) {
    let file = host.write("stable.yaml", &channel("stable/cloud", "15.1.1"));
    let file = file.to_str().unwrap();
    assert_eq!(host.ctl(&["create", file]).good(), "channel \"stable/cloud\" has been created.\n");
    let shown = host.ctl(&["get", "channel/stable/cloud", "--format", "yaml"]).good();
    let before = yaml(&shown);
    assert_eq!(before["spec"], json!({ "version": "15.1.1", "critical": true }));
    assert!(before["metadata"]["revision"].is_string(), "{shown}");

    let taken = host.ctl(&["create", file]).bad(1);
    assert!(taken.contains("stable/cloud") && taken.contains("exists"), "{taken}");

    assert_eq!(
        host.ctl(&["rm", "channel/stable/cloud"]).good(),
        "channel \"stable/cloud\" has been deleted.\n"
    );
    let gone = host.ctl(&["get", "channel/stable/cloud"]).bad(1);
    assert!(gone.contains(r#"there is no channel "stable/cloud""#), "{gone}");
    let gone = host.ctl(&["rm", "channel/stable/cloud"]).bad(1);
    assert!(gone.contains(r#"there is no channel "stable/cloud""#), "{gone}");

    host.ctl_with_input(&["create", "-"], &shown).good();
    let after = host.ctl(&["get", "channel/stable/cloud", "--format", "json"]).json();
    assert_eq!(
        (&after["spec"], &after["kind"], &after["version"]),
        (&before["spec"], &before["kind"], &before["version"])
    );

    let changed = shown.replace("15.1.1", "15.2.0").replace("true", "false");
    let stale = host.ctl_with_input(&["create", "--force", "-"], &changed).bad(1);
    assert!(stale.contains(r#"channel "stable/cloud" was changed by someone else meanwhile"#), "{stale}");
    host.ctl_with_input(&["create", "--force", "-"], &without_revision(&changed)).good();
    let text = host.ctl(&["get", "channels"]).good();
    let line = text.lines().find(|line| line.starts_with("stable/cloud")).unwrap();
    assert!(line.contains("15.2.0") && line.contains("no"), "{text}");
}

#[test]
fn a_resource_comes_back_as_it_was_written_on_sqlite() {
    let host = Host::new();
    let server = host.serve();
    assert!(server.fact("Store").contains("sqlite"), "{}", server.greeting);
    round_trip(&host);
}

#[tokio::test]
async fn a_resource_comes_back_as_it_was_written_on_etcd() {
    let host = Host::new();
    let server = host.serve_with(&["--backend", &empty_store("round-trip").await], &[]);
    assert!(server.fact("Store").contains("etcd"), "{}", server.greeting);
    round_trip(&host);
}

#[test]
fn many_resources_are_listed_and_moved_to_another_cluster() {
    const COUNT: usize = 120;
    let [old, new] = [Host::new(), Host::new()];
    let (_old, _new) = (old.serve(), new.serve());
    assert_eq!(old.ctl(&["get", "channels"]).good(), "There is none.\n");
    assert_eq!(old.ctl(&["get", "channels", "--format", "json"]).json(), json!([]));
    let documents: Vec<String> =
        (0..COUNT).map(|n| channel(&format!("c{n:03}"), &format!("1.0.{n}"))).collect();
    old.ctl_with_input(&["create", "-"], &documents.join("---\n")).good();

    let specs = |host: &Host| {
        let all = host.ctl(&["get", "channels", "--format", "json"]).json();
        let all = all.as_array().unwrap().clone();
        all.into_iter().map(|one| (one["metadata"]["name"].clone(), one["spec"].clone())).collect::<Vec<_>>()
    };
    let before = specs(&old);
    assert_eq!(before.len(), COUNT);
    let exported = old.ctl(&["get", "channels", "--format", "yaml"]).good();
    new.ctl_with_input(&["create", "--force", "-"], &exported).good();
    assert_eq!(specs(&new), before);
    let mut exported = old.ctl(&["get", "channels", "--format", "json"]).json();
    for channel in exported.as_array_mut().unwrap() {
        channel["metadata"].as_object_mut().unwrap().remove("revision");
    }
    new.ctl_with_input(&["create", "--force", "-"], &exported.to_string()).good();
    assert_eq!(specs(&new), before);
    let status = new.ctl(&["status"]).good();
    assert!(status.contains(&format!("{COUNT} channels")), "{status}");
}

#[test]
fn every_answer_has_all_three_formats() {
    let host = Host::new();
    let server = host.serve();
    eventually("the migration is applied", || {
        host.ctl(&["migrations", "ls", "--format", "json"]).json()[0]["success"] == true
    });
    host.ctl_with_input(&["create", "-"], &channel("one", "1.0.0")).good();
    let commands: [&[&str]; 5] = [
        &["status"],
        &["get", "channels"],
        &["get", "channel/one"],
        &["migrations", "ls"],
        &["migrations", "apply"],
    ];
    for command in commands {
        let text = host.ctl(command).good();
        assert!(!text.trim().is_empty() && !text.contains('\u{1b}'), "{command:?}: {text:?}");
        let json = host.ctl(&[command, &["--format", "json"]].concat()).json();
        let as_yaml = yaml(&host.ctl(&[command, &["--format", "yaml"]].concat()).good());
        let as_yaml = if command == ["get", "channels"] { json!([as_yaml]) } else { as_yaml };
        if command == ["status"] {
            assert_eq!(as_yaml["ca_pin"], json["ca_pin"]);
        } else {
            assert_eq!(as_yaml, json, "{command:?}");
        }
    }
    let status = host.ctl(&["--format", "json", "status"]).json();
    assert_eq!(status["ca_pin"], server.fact("CA pin"));
    assert_eq!(status["migrations"], json!({ "applied": 1, "failed": 0, "outstanding": 0 }));
    assert_eq!(status["resources"], json!({ "channel": 1 }));
    assert_eq!(host.ctl(&["migrations", "apply"]).good(), "Nothing was due.\n");
    let migration = &host.ctl(&["migrations", "ls", "--format", "json"]).json()[0];
    assert_eq!((&migration["number"], &migration["outcome"]), (&json!(1), &json!("success")));

    let created = host.ctl_with_input(&["create", "-", "--format", "json"], &channel("two", "1.0.0")).json();
    assert_eq!(created[0]["metadata"]["name"], "two");
    assert_eq!(
        host.ctl(&["rm", "channel/two", "--format", "json"]).json(),
        json!({"kind": "channel", "name": "two"})
    );
    let unknown = host.ctl(&["status", "--format", "xml"]).bad(2);
    assert!(unknown.contains("text, json, yaml"), "{unknown}");
}

#[test]
fn kinds_and_names_are_checked() {
    let host = Host::new();
    let _server = host.serve();
    for (arguments, word) in [
        (["get", "nonsense"], "is not a kind of resource; expected channel"),
        (["get", "nonsense/x"], "is not a kind of resource; expected channel"),
        (["get", "channel/"], "expected KIND/NAME"),
        (["rm", "channel"], "expected KIND/NAME"),
    ] {
        let error = host.ctl(&arguments).bad(2);
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    let odd = host.ctl(&["get", "channel/../x"]).bad(2);
    assert!(odd.contains("is not a channel name"), "{odd}");
}
