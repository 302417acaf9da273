//! The field-by-field difference of two documents that an audit event records. No I/O.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The length of a value in an event: a line on a wide terminal. The resource has the full value.
const LONGEST_VALUE: usize = 200;

/// Differences that one event holds: with 200 characters on both sides they stay far below what fits a
/// transaction beside the resource itself.
const MAX_DIFFERENCES: usize = 200;

/// One place at which two documents differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Difference {
    /// As in `spec.groups[1].max_in_flight`.
    pub(crate) path: String,
    /// As JSON; empty for what was not there.
    pub(crate) before: String,
    /// As JSON; empty for what is not there any more.
    pub(crate) after: String,
}

/// The part of a document that counts as a change: not its revision, which every write changes.
pub(super) fn comparable(document: &refit_types::Document) -> Value {
    let mut all = json!({ "spec": document.spec });
    if !document.metadata.description.is_empty() {
        all["metadata"] = json!({ "description": document.metadata.description });
    }
    all
}

/// Where two documents differ, leaf by leaf in the order of paths, and how many more places there are.
pub(super) fn differences(before: Option<&Value>, after: Option<&Value>) -> (Vec<Difference>, usize) {
    let mut found = Vec::new();
    compare(String::new(), before, after, &mut found);
    let more = found.len().saturating_sub(MAX_DIFFERENCES);
    found.truncate(MAX_DIFFERENCES);
    (found, more)
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let (empty_map, empty_list) = (Map::new(), Vec::new());
    let maps = match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => Some((before, after)),
        (Some(Value::Object(before)), None) if !before.is_empty() => Some((before, &empty_map)),
        (None, Some(Value::Object(after))) if !after.is_empty() => Some((&empty_map, after)),
        _ => None,
    };
    if let Some((before, after)) = maps {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            compare(member(&path, name), before.get(name), after.get(name), found);
        }
        return;
    }
    let lists = match (before, after) {
        (Some(Value::Array(before)), Some(Value::Array(after))) => Some((before, after)),
        (Some(Value::Array(before)), None) if !before.is_empty() => Some((before, &empty_list)),
        (None, Some(Value::Array(after))) if !after.is_empty() => Some((&empty_list, after)),
        _ => None,
    };
    if let Some((before, after)) = lists {
        for n in 0..before.len().max(after.len()) {
            compare(format!("{path}[{n}]"), before.get(n), after.get(n), found);
        }
        return;
    }
    found.push(Difference { path, before: shown(before), after: shown(after) });
}

fn member(path: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match (path.is_empty(), !name.is_empty() && name.chars().all(plain)) {
        (true, true) => name.to_owned(),
        (false, true) => format!("{path}.{name}"),
        (_, false) => format!("{path}[{}]", Value::from(name)),
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map(Value::to_string).unwrap_or_default();
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: Option<Value>, after: Option<Value>) -> Vec<String> {
        let (found, more) = differences(before.as_ref(), after.as_ref());
        assert_eq!(more, 0);
        found.iter().map(|one| format!("{}: {} -> {}", one.path, one.before, one.after)).collect()
    }

    #[test]
    fn every_leaf_that_differs_is_named_by_its_path() {
        let before = json!({
            "spec": { "groups": { "regular": [{ "name": "a" }, { "name": "b", "max_in_flight": "10%" }] } },
            "kept": [1, { "x": null }],
        });
        let mut after = before.clone();
        after["spec"]["groups"]["regular"][1]["max_in_flight"] = json!("20%");
        after["spec"]["groups"]["regular"].as_array_mut().unwrap().push(json!({ "name": "c", "labels": {} }));
        after["metadata"] = json!({ "description": "new" });
        after["labels"] = json!({ "a.b": 1 });
        assert_eq!(
            told(Some(before.clone()), Some(after.clone())),
            [
                r#"labels["a.b"]:  -> 1"#,
                r#"metadata.description:  -> "new""#,
                r#"spec.groups.regular[1].max_in_flight: "10%" -> "20%""#,
                r#"spec.groups.regular[2].labels:  -> {}"#,
                r#"spec.groups.regular[2].name:  -> "c""#,
            ]
        );
        assert_eq!(told(Some(after.clone()), Some(after)), [""; 0]);
        assert_eq!(told(Some(json!({ "a": [1] })), None), ["a[0]: 1 -> "]);
        assert_eq!(
            told(Some(json!({ "a": [1] })), Some(json!({ "a": { "b": null } }))),
            [r#"a: [1] -> {"b":null}"#]
        );
        assert_eq!(told(Some(json!({ "a": null })), Some(json!({}))), ["a: null -> "]);
    }

    #[test]
    fn long_values_and_long_lists_are_cut_and_it_is_said() {
        let (found, _) = differences(None, Some(&json!({ "a": "é".repeat(1000) })));
        assert_eq!(found[0].after.chars().count(), LONGEST_VALUE + 1);
        assert!(found[0].after.ends_with('…'));
        let many: Vec<usize> = (0..MAX_DIFFERENCES + 7).collect();
        let (found, more) = differences(None, Some(&json!({ "a": many })));
        assert_eq!((found.len(), more), (MAX_DIFFERENCES, 7));
    }
}
