//! The store's counter, by which records are told apart in time. No I/O: whoever reads a record passes its
//! revision on.

use std::fmt;

/// A moment of the store: one counter for all keys, that only grows. Knowing the revision of a record is what
/// lets a decision about it be refused once the record has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
