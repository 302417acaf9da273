//! Reads documents that hold private keys. The messages of `serde_json` quote what they found; these
//! name the field instead.

use serde_json::Value;

use crate::names::quoted;

type Found<T> = std::result::Result<T, String>;

pub(crate) fn parse(bytes: &[u8]) -> Found<Value> {
    serde_json::from_slice(bytes)
        .map_err(|error| format!("it is not JSON (line {}, column {})", error.line(), error.column()))
}

/// Checks the two fields that say what a document is.
pub(crate) fn expect(document: &Value, kind: &str, version: &str) -> Found<()> {
    for (field, expected) in [("kind", kind), ("version", version)] {
        let found = text(document, field)?;
        if found != expected {
            return Err(format!("its {field} is {}: expected {expected:?}", quoted(found)));
        }
    }
    Ok(())
}

/// The field at a path like `spec.key`.
pub(crate) fn field<'a>(document: &'a Value, path: &str) -> Found<&'a Value> {
    path.split('.')
        .try_fold(document, |value, name| value.get(name))
        .ok_or_else(|| format!("{path} is missing"))
}

pub(crate) fn text<'a>(document: &'a Value, path: &str) -> Found<&'a str> {
    field(document, path)?.as_str().ok_or_else(|| format!("{path} is not a text"))
}

pub(crate) fn list<'a>(document: &'a Value, path: &str) -> Found<&'a [Value]> {
    field(document, path)?.as_array().map(Vec::as_slice).ok_or_else(|| format!("{path} is not a list"))
}

pub(crate) fn texts<'a>(document: &'a Value, path: &str) -> Found<Vec<&'a str>> {
    let items = list(document, path)?.iter().enumerate();
    items.map(|(at, item)| item.as_str().ok_or_else(|| format!("{path}[{at}] is not a text"))).collect()
}
