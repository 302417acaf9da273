//! The installation of a version from its archive: one pass that downloads, hashes and unpacks in constant memory, and
//! leaves nothing behind unless the whole archive is good. Called by the client of the control plane.

mod checksum;
mod destination;
mod error;
mod https;
mod install;
mod patience;
mod pipe;
mod resume;
mod source;
mod space;
mod tar_reader;
mod unpack;

pub use error::ArchiveError;
pub use https::{HttpsOptions, HttpsSource};
pub(crate) use install::PART;
pub use install::{Download, InstallError, Installed, install};
pub use patience::{Interrupt, Patience, TransferLimits};
pub use resume::ResumingReader;
pub(crate) use source::redacted;
pub use source::{Source, SourceError, SourceErrorKind, Transfer};

/// Called with how many bytes have arrived, and of how many if that is known, from the thread that downloads.
pub type Progress<'a> = &'a (dyn Fn(u64, Option<u64>) + Sync);
