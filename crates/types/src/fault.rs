use std::fmt;

use serde_json::{Map, Value};

/// One thing that is wrong with a document: where, what was found, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place, as in `spec.version`.
    pub path: String,
    /// What stands there and what may, in words.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// Everything that is wrong with a document, so that its author mends it in one go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Notes one more.
    pub fn add(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Fault { path: path.into(), problem: problem.into() });
    }

    /// What was noted, in the order of the document's fields.
    pub fn list(&self) -> &[Fault] {
        &self.0
    }

    /// The value, if nothing was found wrong and it could be made at all.
    pub fn or<T>(self, value: Option<T>) -> Result<T, Faults> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The fields of one object of a document, taken out one by one; what is left at the end is unknown.
pub(crate) struct Fields<'a> {
    path: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    faults: &'a mut Faults,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(path: &str, value: Value, faults: &'a mut Faults) -> Self {
        let left = match value {
            Value::Object(map) => map,
            other => {
                let place = if path.is_empty() { "the document" } else { path };
                faults.add(place, format!("expected a map, found {}", shown(&other)));
                Map::new()
            }
        };
        Self { path: path.to_owned(), left, known: Vec::new(), faults }
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(crate) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.left.remove(field).filter(|value| !value.is_null())
    }

    pub(crate) fn fault(&mut self, field: &str, problem: impl Into<String>) {
        let path = self.path_of(field);
        self.faults.add(path, problem);
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
                    self.fault(field, error.to_string());
                    None
                }
            },
            other => {
                self.fault(field, format!("expected a text, found {}", shown(&other)));
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
            self.fault(field, "is missing");
            return None;
        }
        self.text(field, parse)
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Option<bool> {
        match self.take(field)? {
            Value::Bool(flag) => Some(flag),
            other => {
                self.fault(field, format!("expected true or false, found {}", shown(&other)));
                None
            }
        }
    }

    /// Every field that nobody asked for is a fault.
    pub(crate) fn end(mut self) {
        let unknown: Vec<String> = self.left.keys().cloned().collect();
        for field in unknown {
            let known = self.known.join(", ");
            self.fault(&field, format!("is not a known field; expected one of {known}"));
        }
    }
}

/// A value as it looks in the document, cut to a readable length.
pub(crate) fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
