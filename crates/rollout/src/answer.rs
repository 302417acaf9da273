//! The update instruction of a host: what `find` returns to its updater.

/// An update instruction: whether to update now, with which jitter, and as which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Whether to update now.
    pub auto_update: bool,
    /// Over how many seconds the updater spreads its start.
    pub jitter_seconds: u32,
    /// Identifies the start in the updater's reports; 0 where starts are not counted.
    pub attempt: u64,
}
