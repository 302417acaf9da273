//! Keys and key ranges, validated once so that every backend orders and bounds them alike.

use std::fmt;
use std::sync::Arc;

use crate::limits::MAX_KEY_BYTES;
use crate::{Error, Result};

/// A `/`-separated path. Ordered by its bytes, on every backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Takes a path that starts with `/`, has no empty part and no control character.
    pub fn new(path: impl AsRef<str>) -> Result<Self> {
        let path = path.as_ref();
        let refused = |why: &str| Err(Error::Invalid(format!("{path:?} is not a key: {why}")));
        if path.len() > MAX_KEY_BYTES {
            return Err(Error::TooLarge(format!(
                "a key of {} bytes is too long: at most {MAX_KEY_BYTES} are allowed",
                path.len()
            )));
        }
        let Some(parts) = path.strip_prefix('/') else {
            return refused("it must start with \"/\"");
        };
        if parts.split('/').any(str::is_empty) {
            return refused("it has an empty part");
        }
        if path.chars().any(char::is_control) {
            return refused("it has a control character");
        }
        Ok(Self(path.into()))
    }

    /// The key below this one, named by one or more further parts.
    pub fn child(&self, name: impl fmt::Display) -> Result<Self> {
        Self::new(format!("{}/{name}", self.0))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys from `start` (included) to `end` (not included), in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl KeyRange {
    /// Everything below `parent`: `/a` covers `/a/b` and `/a/b/c`, and neither `/a` itself nor `/ab`.
    pub fn below(parent: &Key) -> Self {
        let mut start = parent.as_str().as_bytes().to_vec();
        let mut end = start.clone();
        start.push(b'/');
        end.push(b'/' + 1);
        Self { start, end }
    }

    /// From one key up to, not including, another.
    pub fn between(start: &Key, end: &Key) -> Self {
        Self { start: start.as_str().into(), end: end.as_str().into() }
    }

    /// Every key of the store.
    pub fn all() -> Self {
        Self { start: b"/".to_vec(), end: vec![b'/' + 1] }
    }

    /// What is left of this range behind `key`: the next page.
    pub fn after(&self, key: &Key) -> Self {
        let mut start = key.as_str().as_bytes().to_vec();
        start.push(0);
        Self { start: start.max(self.start.clone()), end: self.end.clone() }
    }

    /// The first key that may be in the range.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// The first key that is past the range.
    pub fn end(&self) -> &[u8] {
        &self.end
    }

    /// Whether no key can be in it.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether `key` is in it.
    pub fn contains(&self, key: &Key) -> bool {
        let key = key.as_str().as_bytes();
        self.start.as_slice() <= key && key < self.end.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths() {
        for bad in ["", "/", "a", "a/b", "/a//b", "/a/", "/a\n", "/\u{0}"] {
            assert!(matches!(Key::new(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
        assert!(matches!(Key::new(format!("/{}", "x".repeat(1024))), Err(Error::TooLarge(_))));
        assert_eq!(Key::new("/a/b").unwrap().as_str(), "/a/b");
    }

    #[test]
    fn below_a_key_is_not_beside_it() {
        let key = |path: &str| Key::new(path).unwrap();
        let range = KeyRange::below(&key("/a"));
        assert!(range.contains(&key("/a/b")) && range.contains(&key("/a/b/c")));
        for outside in ["/a", "/ab", "/a0", "/b"] {
            assert!(!range.contains(&key(outside)), "{outside}");
        }
        assert!(!range.after(&key("/a/b")).contains(&key("/a/b")));
        assert!(range.after(&key("/a/b")).contains(&key("/a/b/c")));
    }
}
