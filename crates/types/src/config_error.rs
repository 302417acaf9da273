//! Why the configuration of a program cannot be used: one type for server, agent and updater.

use std::io;
use std::path::PathBuf;

use crate::ValidationErrors;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read: {source}", path = .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("the configuration file {path} cannot be written: {source}", path = .path.display())]
    Unwritable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {error}", path = .path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with its place in the file.
        error: String,
    },
    /// Settings have invalid values: all of them, by their names.
    #[error("settings with invalid values:\n{0}")]
    Settings(ValidationErrors),
}
