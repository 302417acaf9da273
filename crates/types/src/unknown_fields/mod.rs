//! Fields of a stored record that this release does not know. Two releases of the server write one store:
//! whoever reads a record, changes something and writes it back must not erase what a newer release added,
//! at any depth. A record type has one [`UnknownFields`] for itself and everything inside of it, and
//! [`keep_unknown_fields!`](crate::keep_unknown_fields) makes serde fill it in and write it back.

mod collector;

use std::collections::BTreeMap;

use serde::Deserializer;
use serde_json::{Map, Value};

pub use collector::Collector;
use collector::Found;

/// What a record has beyond the fields of its type, and where. Empty in nearly every record, and then as
/// large as a pointer: a server keeps a million host records in memory.
/// Values are kept as JSON: numbers are integers of 64 bits or doubles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnknownFields(Option<Box<Level>>);

/// What one object of a record has beyond its type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Level {
    /// Fields that are not known, as they were read.
    fields: Map<String, Value>,
    /// What was found inside of fields that are known.
    below: BTreeMap<Box<str>, Level>,
}

impl UnknownFields {
    /// Whether every field was known.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Reads a value from a deserializer, and what its type has no fields for.
    pub fn collect<'de, D, T>(
        from: D,
        read: impl FnOnce(Collector<'_, D>) -> Result<T, D::Error>,
    ) -> Result<(T, Self), D::Error>
    where
        D: Deserializer<'de>,
    {
        let mut found = Found::Nothing;
        let value = read(Collector::new(from, &mut found))?;
        let level = found.into_level().filter(|level| !level.is_empty());
        Ok((value, Self(level.map(Box::new))))
    }

    /// The record as it is to be written: its known fields, and these. Fields that were found inside of
    /// something which the record no longer has go with it.
    pub fn merged_into(&self, mut known: Value) -> Value {
        if let Some(level) = &self.0 {
            level.add_to(&mut known);
        }
        known
    }

    /// Drops what was found inside of one field, because that is about to mean something else.
    pub fn forget_below(&mut self, field: &str) {
        let Some(level) = &mut self.0 else { return };
        level.below.remove(field);
        if level.is_empty() {
            self.0 = None;
        }
    }
}

impl Level {
    fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.below.is_empty()
    }

    fn add_to(&self, known: &mut Value) {
        let Value::Object(known) = known else { return };
        for (name, value) in &self.fields {
            known.entry(name).or_insert_with(|| value.clone());
        }
        for (name, below) in &self.below {
            if let Some(part) = known.get_mut(&**name) {
                below.add_to(part);
            }
        }
    }
}

/// Implements serde's traits for a record so that unknown fields at every depth survive a rewrite. The record
/// derives both traits with `#[serde(remote = "Self")]`, and has a field `#[serde(skip)] unknown:
/// UnknownFields`. Structs inside of it need nothing, but elements of a list have no name to be found again
/// by: their type needs a field of its own. Enums inside of it must not be internally tagged, because serde
/// then reads their fields where nobody sees which of them are known.
#[macro_export]
macro_rules! keep_unknown_fields {
    ($($record:ty),+ $(,)?) => {$(
        impl ::serde::Serialize for $record {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> ::std::result::Result<S::Ok, S::Error> {
                if self.unknown.is_empty() {
                    return <$record>::serialize(self, to);
                }
                let known = <$record>::serialize(self, ::serde_json::value::Serializer);
                let known = known.map_err(<S::Error as ::serde::ser::Error>::custom)?;
                ::serde::Serialize::serialize(&self.unknown.merged_into(known), to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $record {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> ::std::result::Result<Self, D::Error> {
                let (record, unknown) =
                    $crate::UnknownFields::collect(from, |from| <$record>::deserialize(from))?;
                Ok(Self { unknown, ..record })
            }
        }
    )+};
}
