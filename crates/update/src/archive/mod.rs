//! How a version gets onto the disk: one pass that downloads, hashes and unpacks, with memory that stays flat
//! whatever the size, and nothing left behind unless the whole archive was good.

mod checksum;
mod https;
mod install;
mod members;
mod pipe;
mod place;
mod problem;
mod resume;
mod source;
mod space;
mod unpack;

pub use https::{HttpsOptions, HttpsSource};
pub use install::{InstallError, Installed, install};
pub use problem::ArchiveProblem;
pub use resume::ResumingReader;
pub(crate) use source::shown;
pub use source::{Opened, Source, SourceError, SourceProblem};

/// CommandResult how many bytes have arrived, and of how many if that is known: from the thread that downloads.
pub type Progress<'a> = &'a (dyn Fn(u64, Option<u64>) + Sync);
