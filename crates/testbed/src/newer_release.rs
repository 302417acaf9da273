//! Adds unknown fields to stored records, as a future release would, and checks that they survive.

use serde_json::{Value, json};

/// Objects whose keys are user-given names and not fields, and an enum's value, which has one key.
const NOT_STRUCTS: [&str; 3] = ["node_labels", "instance_labels", "state"];

/// The document with an unknown field in every object of it.
pub fn with_newer_fields(document: &Value) -> Value {
    let mut document = document.clone();
    add(&mut document, "", "");
    document
}

fn add(value: &mut Value, name: &str, path: &str) {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().enumerate().for_each(|(n, element)| add(element, "", &format!("{path}/{n}")));
        }
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| add(value, name, &format!("{path}/{name}")));
            if !NOT_STRUCTS.contains(&name) {
                fields.insert("newer".into(), json!({ "of": path, "list": [1, { "deep": true }] }));
            }
        }
        _ => {}
    }
}

/// Where unknown fields of `before` are gone in `after`, among the objects that both have.
pub fn lost_newer_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    compare(before, after, "", &mut lost);
    lost
}

fn compare(before: &Value, after: &Value, path: &str, lost: &mut Vec<String>) {
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            let pairs = before.iter().zip(after).enumerate();
            pairs.for_each(|(n, (before, after))| compare(before, after, &format!("{path}/{n}"), lost));
        }
        (Value::Object(before), Value::Object(after)) => {
            if before.get("newer").is_some_and(|newer| after.get("newer") != Some(newer)) {
                lost.push(format!("{path}/newer"));
            }
            for (name, value) in before {
                if let Some(after) = after.get(name) {
                    compare(value, after, &format!("{path}/{name}"), lost);
                }
            }
        }
        _ => {}
    }
}
