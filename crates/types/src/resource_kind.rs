//! What a kind of resource says of itself, and the macro that makes [`Kind`] and [`Resource`] from the table in
//! `kinds.rs`. Everything that works on resources asks here instead of matching on kinds.

use std::fmt::{self, Debug};
use std::str::FromStr;

use serde_json::Value;

use crate::validation::ValidationErrors;
use crate::{Kind, Resource};

/// One row of the table of kinds.
#[derive(Debug, Clone, Copy)]
pub struct KindInfo {
    /// The name in documents.
    pub name: &'static str,
    /// The version of the document that this binary reads and writes.
    pub document_version: &'static str,
    /// What its resources are called.
    pub naming: Naming,
    /// Who may write them, besides administrators. Every role may read them.
    pub editors: Editors,
    /// Whether a write changes what hosts are told to run, so that the rollout must take it in at once.
    pub drives_rollouts: bool,
    /// The columns of `refitctl get`; without any, the document is shown as YAML.
    pub columns: &'static [Column],
    /// The spec that `refitctl edit` begins with while nothing is stored, for a kind without defaults.
    pub draft: Option<fn() -> Value>,
}

/// What the resources of a kind are called.
#[derive(Debug, Clone, Copy)]
pub enum Naming {
    /// A cluster has one, of this name.
    Singleton(&'static str),
    /// A cluster has any number.
    Named {
        /// Whether a resource may have this name. It must accept everything that older releases have stored.
        stored: NameRule,
        /// Whether a new resource may have this name.
        new: NameRule,
    },
}

/// Accepts a name, or says what is wrong with it.
pub type NameRule = fn(&str) -> Result<(), String>;

/// Who may write the resources of a kind, besides administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Editors {
    /// Nobody else.
    Administrators,
    /// Those who choose versions.
    Versions,
    /// Those who plan rollouts.
    Rollouts,
}

/// One column of `refitctl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// What stands above it.
    pub heading: &'static str,
    /// Where its value is in the document, as a JSON pointer.
    pub pointer: &'static str,
    /// What kind of value that is.
    pub cell: Cell,
}

/// How a column shows its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A text; empty if the document has none.
    Text,
    /// `yes` or `no`; `no` if the document does not say.
    Flag,
}

impl Column {
    /// A column of texts.
    pub const fn text(heading: &'static str, pointer: &'static str) -> Self {
        Self { heading, pointer, cell: Cell::Text }
    }

    /// A column of `yes` and `no`.
    pub const fn flag(heading: &'static str, pointer: &'static str) -> Self {
        Self { heading, pointer, cell: Cell::Flag }
    }

    /// What stands in the column for a document.
    pub fn value(&self, document: &Value) -> String {
        let value = document.pointer(self.pointer);
        match self.cell {
            Cell::Text => value.and_then(Value::as_str).unwrap_or_default().to_owned(),
            Cell::Flag if value.and_then(Value::as_bool).unwrap_or_default() => "yes".into(),
            Cell::Flag => "no".into(),
        }
    }
}

/// How much of a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What differs from the defaults.
    Compact,
    /// Every field.
    Full,
}

/// What a document says besides its kind and its spec, as far as it is valid.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The name; none if it is missing or not valid, or if there can be only one.
    pub name: Option<String>,
    /// The description, which may be empty.
    pub description: String,
}

/// A type whose values operators keep in the cluster.
pub trait ResourceKind:
    Clone + Debug + Send + Sync + Into<Resource> + TryFrom<Resource, Error = Kind> + 'static
{
    /// Its row in the table of kinds.
    const INFO: KindInfo;

    /// What this one is called.
    fn name(&self) -> &str {
        Self::INFO.singleton().unwrap_or_default()
    }

    /// What it is for, in the operator's words.
    fn description(&self) -> &str;

    /// The `spec` of its document.
    fn spec(&self, detail: Detail) -> Value;

    /// Reads it from the parts of a document and adds every error that these have; none if it cannot be made.
    fn from_parts(header: Header, spec: Value, errors: &mut ValidationErrors) -> Option<Self>;

    /// What holds while nothing is stored, if anything does.
    fn defaults() -> Option<Self> {
        None
    }

    /// Why an operator must consent before this replaces `present`.
    fn needs_consent_to_replace(&self, _present: &Self) -> Option<String> {
        None
    }
}

impl KindInfo {
    /// The name of the only one there can be, for kinds of which a cluster has one.
    pub const fn singleton(&self) -> Option<&'static str> {
        match self.naming {
            Naming::Singleton(name) => Some(name),
            Naming::Named { .. } => None,
        }
    }
}

/// A text that names no kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a kind of resource; expected {}", Kind::ALL.map(Kind::name).join(", "))]
pub struct UnknownKind {
    found: String,
}

impl Kind {
    /// The name in documents.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The version of the document that this binary reads and writes.
    pub fn document_version(self) -> &'static str {
        self.info().document_version
    }

    /// The name of the only one there can be, for kinds of which a cluster has one.
    pub fn singleton(self) -> Option<&'static str> {
        self.info().singleton()
    }

    /// The name of the resource that an operator calls so; a singleton need not be named.
    pub fn named(self, name: &str) -> Result<&str, String> {
        match self.info().naming {
            Naming::Singleton(only) if name.is_empty() || name == only => Ok(only),
            Naming::Singleton(only) => {
                let name: String = name.chars().take(80).collect();
                Err(format!("{name:?} is not the name of the {self}; expected {only}, or none"))
            }
            Naming::Named { stored, .. } => stored(name).map(|()| name),
        }
    }

    /// A resource as events name it: by its kind alone, where there is only one.
    pub fn subject(self, name: &str) -> String {
        match self.singleton() {
            None if !name.is_empty() => format!("{self}/{name}"),
            _ => self.name().to_owned(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// The plural is accepted too, because people type `get channels`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let singular = text.strip_suffix('s').unwrap_or(text);
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text || kind.name() == singular);
        found.ok_or_else(|| UnknownKind { found: text.chars().take(80).collect() })
    }
}

/// Makes `Kind` and `Resource` from the list of kinds, each the name of its type; `boxed` for a type that is large.
macro_rules! kinds {
    (@held $type:ident) => { $type };
    (@held $type:ident boxed) => { Box<$type> };
    (@taken $value:ident) => { $value };
    (@taken $value:ident boxed) => { *$value };
    ($($(#[$doc:meta])+ $kind:ident $($boxed:ident)?;)+) => {
        /// What kinds of things operators keep in the cluster.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])+ $kind,)+
        }

        /// A resource of any kind.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Resource {
            $($(#[$doc])+ $kind(kinds!(@held $kind $($boxed)?)),)+
        }

        impl Kind {
            /// All of them.
            pub const ALL: [Kind; [$(Kind::$kind),+].len()] = [$(Kind::$kind),+];

            /// The row of the table that describes it.
            pub fn info(self) -> &'static KindInfo {
                match self {
                    $(Self::$kind => &<$kind as ResourceKind>::INFO,)+
                }
            }

            /// What holds while nothing is stored, if anything does.
            pub fn defaults(self) -> Option<Resource> {
                match self {
                    $(Self::$kind => <$kind as ResourceKind>::defaults().map(Resource::from),)+
                }
            }

            pub(crate) fn resource_from(
                self,
                header: Header,
                spec: Value,
                errors: &mut ValidationErrors,
            ) -> Option<Resource> {
                match self {
                    $(Self::$kind => {
                        <$kind as ResourceKind>::from_parts(header, spec, errors).map(Resource::from)
                    })+
                }
            }
        }

        impl Resource {
            /// Which kind it is.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)+
                }
            }

            /// What it is called.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$kind(value) => value.name(),)+
                }
            }

            pub(crate) fn description(&self) -> &str {
                match self {
                    $(Self::$kind(value) => value.description(),)+
                }
            }

            pub(crate) fn spec(&self, detail: Detail) -> Value {
                match self {
                    $(Self::$kind(value) => value.spec(detail),)+
                }
            }

            /// Why an operator must consent before this replaces `present`.
            pub fn needs_consent_to_replace(&self, present: &Self) -> Option<String> {
                match (self, present) {
                    $((Self::$kind(wanted), Self::$kind(present)) => wanted.needs_consent_to_replace(present),)+
                    _ => None,
                }
            }
        }

        $(
            impl From<$kind> for Resource {
                fn from(value: $kind) -> Self {
                    Self::$kind(value.into())
                }
            }

            impl TryFrom<Resource> for $kind {
                type Error = Kind;

                fn try_from(resource: Resource) -> Result<Self, Kind> {
                    match resource {
                        Resource::$kind(value) => Ok(kinds!(@taken value $($boxed)?)),
                        other => Err(other.kind()),
                    }
                }
            }
        )+
    };
}
pub(crate) use kinds;
