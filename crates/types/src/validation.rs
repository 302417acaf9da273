//! Validation errors with their path, and the reader of documents that collects all of them in one pass.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::HostLimit;
use crate::rollout::EXPECTED_LIMIT;

/// One thing that is wrong with a document: where, what was found, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// The place, as in `spec.version`.
    pub path: String,
    /// What stands there and what may, in words.
    pub problem: String,
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// All validation errors of a document, so that its author can fix them at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValidationErrors {
    listed: Vec<ValidationError>,
    more: usize,
}

/// Nobody reads more than this.
const MOST_LISTED: usize = 100;

impl ValidationErrors {
    /// Adds one.
    pub fn add(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        match self.listed.len() < MOST_LISTED {
            true => self.listed.push(ValidationError { path: path.into(), problem: problem.into() }),
            false => self.more += 1,
        }
    }

    /// The value, or none with its error added.
    pub fn take<T, E: fmt::Display>(&mut self, path: impl Into<String>, value: Result<T, E>) -> Option<T> {
        value.map_err(|error| self.add(path, error.to_string())).ok()
    }

    /// The errors, in the order of the document's fields.
    pub fn list(&self) -> &[ValidationError] {
        &self.listed
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// How many there are, including those that are not listed.
    pub(crate) fn count(&self) -> usize {
        self.listed.len() + self.more
    }

    /// The value if there are no errors, otherwise the errors.
    pub fn or<T>(self, value: Option<T>) -> Result<T, ValidationErrors> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.listed.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for ValidationErrors {}

/// The fields of one object of a document, taken out one by one; what is left at the end is unknown.
pub(crate) struct Fields<'a> {
    path: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    errors: &'a mut ValidationErrors,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(path: &str, value: Value, errors: &'a mut ValidationErrors) -> Self {
        let left = match value {
            Value::Object(map) => map,
            other => {
                let place = if path.is_empty() { "the document" } else { path };
                errors.add(place, format!("expected a map, found {}", shown(&other)));
                Map::new()
            }
        };
        Self { path: path.to_owned(), left, known: Vec::new(), errors }
    }

    pub(crate) fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(crate) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.left.remove(field).filter(|value| !value.is_null())
    }

    pub(crate) fn add_error(&mut self, field: &str, problem: impl Into<String>) {
        let path = self.path_of(field);
        self.errors.add(path, problem);
    }

    /// A text that `parse` must accept.
    pub(crate) fn text<T, E: fmt::Display>(
        &mut self,
        field: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match self.take(field)? {
            Value::String(text) => match parse(&text) {
                Ok(value) => Some(value),
                Err(error) => {
                    self.add_error(field, error.to_string());
                    None
                }
            },
            other => {
                self.add_error(field, format!("expected a text, found {}", shown(&other)));
                None
            }
        }
    }

    /// Like [`Fields::text`], for a field that must be there.
    pub(crate) fn required_text<T, E: fmt::Display>(
        &mut self,
        field: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        if self.left.get(field).is_none_or(Value::is_null) {
            self.known.push(field);
            self.add_error(field, "is missing");
            return None;
        }
        self.text(field, parse)
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Option<bool> {
        match self.take(field)? {
            Value::Bool(flag) => Some(flag),
            other => {
                self.add_error(field, format!("expected true or false, found {}", shown(&other)));
                None
            }
        }
    }

    /// A whole number of that range.
    pub(crate) fn number(&mut self, field: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.take(field)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = (range.start(), range.end());
            self.add_error(
                field,
                format!("expected a whole number from {least} to {most}, found {}", shown(&value)),
            );
        }
        number
    }

    /// A share of hosts, as `25%`, or a number of them.
    pub(crate) fn host_limit(&mut self, field: &'static str) -> Option<HostLimit> {
        let value = self.take(field)?;
        let limit = match &value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => {
                number.as_u64().and_then(|hosts| u32::try_from(hosts).ok()).map(HostLimit::Hosts)
            }
            _ => None,
        };
        if limit.is_none() {
            self.add_error(field, format!("expected {EXPECTED_LIMIT}, found {}", shown(&value)));
        }
        limit
    }

    /// The elements of a list, which should be `what`.
    pub(crate) fn list(&mut self, field: &'static str, what: &str) -> Option<Vec<Value>> {
        match self.take(field)? {
            Value::Array(list) => Some(list),
            other => {
                self.add_error(field, format!("expected a list of {what}, found {}", shown(&other)));
                None
            }
        }
    }

    /// A map inside this one, empty if it is not there.
    pub(crate) fn map(&mut self, field: &'static str) -> Fields<'_> {
        let value = self.take(field).unwrap_or_else(|| Value::Object(Map::new()));
        self.map_of(field, value)
    }

    /// A value of this map that should be a map itself.
    pub(crate) fn map_of(&mut self, field: &str, value: Value) -> Fields<'_> {
        let path = self.path_of(field);
        Fields::of(&path, value, self.errors)
    }

    /// How many errors the document has so far.
    pub(crate) fn error_count(&self) -> usize {
        self.errors.count()
    }

    /// Adds an error for every field that was not taken.
    pub(crate) fn end(mut self) {
        let unknown: Vec<String> = self.left.keys().cloned().collect();
        for field in unknown {
            let known = self.known.join(", ");
            let field: String = field.chars().take(LONGEST_SHOWN).collect();
            self.add_error(&field, format!("is not a known field; expected one of {known}"));
        }
    }
}

const LONGEST_SHOWN: usize = 60;

/// A value as it looks in the document, cut to a readable length.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
