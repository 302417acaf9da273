//! What a migration is, and the sequence of those that a server knows. Pure: the runner applies them.

use std::fmt;

use data_encoding::HEXLOWER;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Guarded, MigrationError};

/// What a migration does; the message it returns stands in the history.
pub type MigrationFn = for<'a> fn(&'a Guarded) -> BoxFuture<'a, Result<String, MigrationError>>;

/// One change of a storage format, kept for ever.
#[derive(Debug, Clone)]
pub struct Migration {
    /// Its place in the sequence, from 1 on.
    pub number: u32,
    /// Its name, as in the name of its file.
    pub name: &'static str,
    /// The text of its file: a released migration is never altered, and this is how it is noticed.
    pub source: &'static str,
    /// What it does.
    pub run: MigrationFn,
}

impl Migration {
    /// Identifies the text of the migration.
    pub fn checksum(&self) -> Checksum {
        Checksum(HEXLOWER.encode(&Sha256::digest(self.source)))
    }
}

/// The SHA-256 of a migration's source text, in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checksum(pub String);

impl fmt::Display for Checksum {
    /// The first characters are enough for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get(..12).unwrap_or(&self.0))
    }
}

/// The migrations that a server knows, in their order.
#[derive(Debug, Clone, Default)]
pub struct Registry(Vec<Migration>);

impl Registry {
    /// Those that this build was released with.
    pub fn released() -> Self {
        Self(crate::released::all())
    }

    /// A given sequence: for a server of another release.
    pub fn of(migrations: Vec<Migration>) -> Self {
        Self(migrations)
    }

    /// In the order in which they are to be applied.
    pub fn iter(&self) -> impl Iterator<Item = &Migration> {
        self.0.iter()
    }
}
