//! A word of a stored record that only describes: kept as it is when only a newer release knows it.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value of an enum, or a word that a newer release wrote, which is written back as it was read. For values that are
/// only shown, like an edition or a role. A value that decisions depend on, like the state of a group, does not use
/// this: a record with an unknown one cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoredWord<T> {
    /// One that this release knows.
    Known(T),
    /// One that it does not. Boxed twice to keep the enum small: nearly all words of a million hosts are known.
    Unknown(Box<Box<str>>),
}

impl<T> StoredWord<T> {
    /// The value, if this release knows it.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(known) => Some(known),
            Self::Unknown(_) => None,
        }
    }
}

impl<T: AsRef<str>> StoredWord<T> {
    /// The word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(known) => known.as_ref(),
            Self::Unknown(word) => word,
        }
    }
}

impl<T> From<T> for StoredWord<T> {
    fn from(known: T) -> Self {
        Self::Known(known)
    }
}

impl<T: AsRef<str>> fmt::Display for StoredWord<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: AsRef<str>> Serialize for StoredWord<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de, T: FromStr> Deserialize<'de> for StoredWord<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<T: FromStr> de::Visitor<'_> for Visitor<T> {
            type Value = StoredWord<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word")
            }

            fn visit_str<E>(self, word: &str) -> Result<StoredWord<T>, E> {
                Ok(word
                    .parse()
                    .map_or_else(|_| StoredWord::Unknown(Box::new(word.into())), StoredWord::Known))
            }
        }

        from.deserialize_str(Visitor(PhantomData))
    }
}
