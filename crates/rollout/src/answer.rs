//! What a host is told.

/// What a host is told: whether to go to the version now, spread over how many seconds, and as which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Whether to go now.
    pub auto_update: bool,
    /// Over how many seconds the updater spreads its start.
    pub jitter_seconds: u32,
    /// Names the start in the updater's reports; 0 where starts are not counted.
    pub attempt: u64,
}
