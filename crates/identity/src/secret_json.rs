//! Reads JSON documents that hold private keys, for identities and for the stored authority. The messages
//! of `serde_json` quote what they found; these name the field instead.

use serde_json::Value;

use crate::names::quoted;

/// What was read, or what is wrong with the document, in words that quote none of it.
pub type Read<T> = std::result::Result<T, String>;

/// Reads any JSON.
pub fn parse(bytes: &[u8]) -> Read<Value> {
    serde_json::from_slice(bytes)
        .map_err(|error| format!("it is not JSON (line {}, column {})", error.line(), error.column()))
}

/// Checks the two fields that say what a document is.
pub fn expect(document: &Value, kind: &str, version: &str) -> Read<()> {
    for (field, expected) in [("kind", kind), ("version", version)] {
        let found = text(document, field)?;
        if found != expected {
            return Err(format!("its {field} is {}: expected {expected:?}", quoted(found)));
        }
    }
    Ok(())
}

/// The field at a path like `spec.key`.
pub fn field<'a>(document: &'a Value, path: &str) -> Read<&'a Value> {
    path.split('.')
        .try_fold(document, |value, name| value.get(name))
        .ok_or_else(|| format!("{path} is missing"))
}

/// The text at a path.
pub fn text<'a>(document: &'a Value, path: &str) -> Read<&'a str> {
    field(document, path)?.as_str().ok_or_else(|| format!("{path} is not a text"))
}

/// The list at a path.
pub fn list<'a>(document: &'a Value, path: &str) -> Read<&'a [Value]> {
    field(document, path)?.as_array().map(Vec::as_slice).ok_or_else(|| format!("{path} is not a list"))
}

/// The list of texts at a path.
pub fn texts<'a>(document: &'a Value, path: &str) -> Read<Vec<&'a str>> {
    let items = list(document, path)?.iter().enumerate();
    items.map(|(at, item)| item.as_str().ok_or_else(|| format!("{path}[{at}] is not a text"))).collect()
}
