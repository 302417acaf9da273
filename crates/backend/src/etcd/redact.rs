//! Keeps passwords of store addresses out of logs, errors and debug output.

use std::fmt;

/// A password, kept out of everything that is printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(secret: String) -> Self {
        Self(secret)
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The text of a possibly malformed address, without anything that could be a password.
pub(super) fn redacted(address: &str) -> String {
    let start = address.find("://").map_or(0, |scheme| scheme + 3);
    let (scheme, rest) = address.split_at(start);
    let (credentials, rest) = match rest.rfind('@') {
        Some(at) => ("***@", &rest[at + 1..]),
        None => ("", rest),
    };
    match rest.split_once('?') {
        Some((rest, _)) => format!("{scheme}{credentials}{rest}?…"),
        None => format!("{scheme}{credentials}{rest}"),
    }
}
