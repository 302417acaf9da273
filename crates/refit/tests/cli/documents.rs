//! Files of documents: valid, invalid, too large and hostile ones.

use std::time::{Duration, Instant};

use serde_json::json;

use super::resources::channel;
use crate::host::Host;

#[test]
fn texts_survive_the_way_through_yaml() {
    let host = Host::new();
    let _server = host.serve();
    let descriptions = [
        "no",
        "null",
        "~",
        "1.0",
        "0x10",
        "1e3",
        "2026-01-01",
        "- a",
        "# c",
        "a: b",
        "a #b",
        " led",
        "trailed ",
        "two\nlines",
        "ends\n",
        "\ttab",
        "\"quoted\"",
        "it's",
        "{a}",
        "[a]",
        "&a",
        "*a",
        "!a",
        "%a",
        "|",
        ">",
        "é 漢字 🦀",
        "\\n",
        "---",
        "...",
        "<<",
        "=",
        "",
    ];
    let documents: Vec<_> = descriptions
        .iter()
        .enumerate()
        .map(|(n, description)| {
            let metadata = json!({ "name": format!("c{n:02}"), "description": description });
            json!({ "kind": "channel", "metadata": metadata, "spec": { "version": "1.0.0" } })
        })
        .collect();
    host.ctl_with_input(&["create", "-"], &json!(documents).to_string()).good();
    let exported = host.ctl(&["get", "channels", "--format", "yaml"]).good();
    host.ctl_with_input(&["create", "--force", "-"], &exported).good();
    let after = host.ctl(&["get", "channels", "--format", "json"]).json();
    for (n, description) in descriptions.iter().enumerate() {
        let found = after[n]["metadata"]["description"].as_str().unwrap_or_default();
        assert_eq!(found, *description);
    }
}

#[test]
fn every_fault_of_a_document_is_told_at_once() {
    let host = Host::new();
    let _server = host.serve();
    let faulty = "kind: channel\nversion: v9\ncolour: red\nmetadata:\n  name: no good\nspec:\n  version: 15.1\n  critical: perhaps\n";
    let file = host.write("faulty.yaml", faulty);
    let error = host.ctl(&["create", file.to_str().unwrap()]).bad(1);
    for word in ["version:", "colour:", "metadata.name:", "spec.version:", "spec.critical:"] {
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    let no_kind = host.ctl_with_input(&["create", "-"], "metadata: {name: x}\n").bad(1);
    assert!(no_kind.contains("standard input") && no_kind.contains("kind:"), "{no_kind}");
    assert_eq!(host.ctl(&["get", "channels"]).good(), "There is none.\n");
}

#[test]
fn of_several_documents_the_faulty_one_is_named_and_nothing_is_stored() {
    let host = Host::new();
    let _server = host.serve();
    let several = format!("{}---\n{}---\n{}", channel("a", "1.0.0"), channel("b", "one"), channel("c", "x"));
    let error = host.ctl_with_input(&["create", "-"], &several).bad(1);
    for word in ["document 2", "document 3", "spec.version"] {
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    assert_eq!(host.ctl(&["get", "channels"]).good(), "There is none.\n");
    host.ctl_with_input(&["create", "-"], &channel("b", "1.0.0")).good();
    let several = format!("{}---\n{}", channel("a", "1.0.0"), channel("b", "2.0.0"));
    let error = host.ctl_with_input(&["create", "-"], &several).bad(1);
    assert!(error.contains(r#"channel "b""#) && error.contains("exists"), "{error}");
}

#[test]
fn what_is_not_yaml_is_refused_with_the_place() {
    let host = Host::new();
    let _server = host.serve();
    for (text, word) in [
        ("kind: channel\nmetadata: {name: x\nspec: [\n", "line"),
        ("kind: channel\nkind: channel\n", "line 2"),
        ("kind: channel\n\tmetadata: x\n", "line 1"),
        ("", "holds no document"),
        ("# nothing\n", "holds no document"),
        ("just text\n", "expected a map"),
    ] {
        let file = host.write("bad.yaml", text);
        let error = host.ctl(&["create", file.to_str().unwrap()]).bad(1);
        assert!(error.contains(word), "{text:?}: {word:?} is not in {error}");
        assert!(error.contains("bad.yaml"), "{text:?}: {error}");
    }
    let missing = host.ctl(&["create", "missing.yaml"]).bad(1);
    assert!(missing.contains("missing.yaml cannot be read: No such file"), "{missing}");
    std::fs::write(host.path("binary"), [0xff, 0xfe, 0x00]).unwrap();
    let binary = host.ctl(&["create", "binary"]).bad(1);
    assert!(binary.contains("binary") && binary.contains("UTF-8"), "{binary}");
}

#[test]
fn files_that_are_too_large_or_grow_are_refused_at_once() {
    let host = Host::new();
    let _server = host.serve();
    let bomb: String = ('b'..='i').fold("a: &a [x,x,x,x,x,x,x,x,x,x]\n".into(), |text, name| {
        let before = (name as u8 - 1) as char;
        text + &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 10].join(","))
    });
    let deep = "[".repeat(100_000);
    let large = [" ".repeat(2 << 20), "é".repeat(1 << 20), format!("a{}", "é".repeat(1 << 20))];
    for (what, text) in large.iter().map(|text| ("larger than", text)).chain([("", &bomb), ("", &deep)]) {
        let began = Instant::now();
        let error = host.ctl_with_input(&["create", "-"], text).bad(1);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}: {error}", began.elapsed());
        assert!(error.contains(what) && error.len() < 2000, "{what:?} is not in {error}");
    }
    assert_eq!(host.ctl(&["get", "channels"]).good(), "There is none.\n");
}
