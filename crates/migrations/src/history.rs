//! The record of what became of each migration, in the store. The runner writes it; `refitctl migrations` shows it.

use jiff::Timestamp;
use refit_backend::{Item, Key, KeyRange, SharedBackend};
use serde::{Deserialize, Serialize};

use crate::registry::{Checksum, Migration};
use crate::{MigrationError, RunError};

/// What became of a migration the last time that it was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Which one.
    pub number: u32,
    /// What it is called.
    pub name: String,
    /// The text that was run.
    pub checksum: Checksum,
    /// When it ended.
    pub applied_at: Timestamp,
    /// How long it took, in microseconds.
    pub execution_time_us: u64,
    /// Whether it succeeded.
    pub success: bool,
    /// What it said, or the error.
    pub message: String,
    /// The server that ran it.
    pub server: String,
}

impl Record {
    pub(crate) fn new(
        migration: &Migration,
        server: &str,
        applied_at: Timestamp,
        took: std::time::Duration,
        outcome: &Result<String, MigrationError>,
    ) -> Self {
        let (success, message) = match outcome {
            Ok(message) => (true, message.clone()),
            Err(error) => (false, error.to_string()),
        };
        Self {
            number: migration.number,
            name: migration.name.into(),
            checksum: migration.checksum(),
            applied_at,
            execution_time_us: took.as_micros().try_into().unwrap_or(u64::MAX),
            success,
            message,
            server: server.into(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain JSON")
    }

    pub(crate) fn decode(item: &Item) -> Result<Self, RunError> {
        serde_json::from_slice(&item.value)
            .map_err(|error| RunError::History { key: item.key.to_string(), reason: error.to_string() })
    }

    /// Refuses a migration that is not the one that succeeded under this number. One that failed may be
    /// mended by a later release, so its text is free to differ.
    pub(crate) fn check_unaltered(&self, migration: &Migration) -> Result<(), RunError> {
        let here = migration.checksum();
        if self.success && self.checksum != here {
            return Err(RunError::Altered {
                number: migration.number,
                name: migration.name.into(),
                recorded_name: self.name.clone(),
                recorded: self.checksum.clone(),
                here,
            });
        }
        Ok(())
    }
}

/// Where the history of one migration is: four digits, so that key order is number order.
pub(crate) fn history_key(number: u32) -> Key {
    Key::new(format!("/migrations/{number:04}")).expect("digits make a key")
}

/// Where the histories of all migrations are, and no lock of one.
pub(crate) fn history_range() -> Result<KeyRange, RunError> {
    Ok(KeyRange::between(&history_key(0), &Key::new("/migrations/:")?))
}

/// Up to `limit` records behind `after`, in the order of their numbers, and whether there are more. The
/// history may hold numbers that this server does not know: a newer one ran them.
pub async fn list_history(
    backend: &SharedBackend,
    after: Option<u32>,
    limit: usize,
) -> Result<(Vec<Record>, bool), RunError> {
    let numbers = history_range()?;
    let range = after.map_or(numbers.clone(), |number| numbers.after(&history_key(number)));
    let page = backend.range(&range, limit).await?;
    let records = page.items.iter().map(Record::decode).collect::<Result<_, _>>()?;
    Ok((records, page.more))
}
